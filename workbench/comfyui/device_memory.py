"""Memory on the device that torch's allocator does not count, although sampling takes it."""

from __future__ import annotations

from ...optimizers.hosts.comfyui.protocols import ModelPatcher


def beside_the_allocator(model: ModelPatcher) -> int:
    """Return bytes of weights that ComfyUI's dynamic VRAM holds on the device of a MODEL."""
    import comfy.model_management

    patchers = [loaded.model for loaded in comfy.model_management.current_loaded_models]
    found = sum(
        patcher.loaded_size() - patcher.model.model_loaded_weight_memory
        for patcher in patchers
        if patcher is not None and patcher.load_device == model.load_device and patcher.is_dynamic()
    )
    return int(found)
