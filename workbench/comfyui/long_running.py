"""ComfyUI's services for a node that runs for long: a progress bar, the Cancel button, and freeing memory."""

from __future__ import annotations

import gc
from collections.abc import Callable

_TICKS = 10_000


def progress_bar() -> Callable[[float], None]:
    """Return a function that shows the running node's progress, from 0 to 1."""
    import comfy.utils
    from comfy_execution.utils import get_executing_context

    node = get_executing_context()  # while it works it may run other nodes, which have progress of their own
    bar = comfy.utils.ProgressBar(_TICKS, node_id=None if node is None else node.node_id)
    return lambda share: bar.update_absolute(round(_TICKS * share), _TICKS)


def stop_if_cancelled() -> None:
    """Raise ComfyUI's exception if the user has cancelled the workflow."""
    import comfy.model_management

    comfy.model_management.throw_exception_if_processing_interrupted()


def empty_cache() -> None:
    """Return torch's cached memory to the device."""
    import comfy.model_management

    comfy.model_management.soft_empty_cache()


def unload_models() -> None:
    """Unload all models, and free their memory."""
    import comfy.model_management

    gc.collect()
    comfy.model_management.unload_all_models()
    empty_cache()
