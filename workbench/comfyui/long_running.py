"""What a node that works for long asks of ComfyUI: a progress bar, whether it was cancelled, and memory back."""

from __future__ import annotations

import gc


class ProgressBar:
    """The progress bar of the node that runs.

    Args:
        total: the value at which it is full.
    """

    def __init__(self, total: int) -> None:
        import comfy.utils

        self._total = total
        self._bar = comfy.utils.ProgressBar(total)

    def show(self, value: int) -> None:
        """Show how far the work is."""
        self._bar.update_absolute(min(value, self._total), self._total)


def stop_if_cancelled() -> None:
    """Raise ComfyUI's exception if the user has cancelled the workflow."""
    import comfy.model_management

    comfy.model_management.throw_exception_if_processing_interrupted()


def empty_cache() -> None:
    """Give memory back that torch keeps for later."""
    import comfy.model_management

    comfy.model_management.soft_empty_cache()


def unload_models() -> None:
    """Take all models off the devices, and give their memory back."""
    import comfy.model_management

    gc.collect()
    comfy.model_management.unload_all_models()
    empty_cache()
