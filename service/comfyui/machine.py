"""ComfyUI itself: its version and whether it is new enough, its device and what it holds there, progress, and Cancel.

What this pack needs is told by what ComfyUI has, never by a number of its version.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from typing import Any

import torch

from ...optimizers.core.errors import HostTooOld
from ...optimizers.in_comfyui.structure.protocols import ModelPatcher


def host_version() -> str:
    """Return ComfyUI's version, or ``unknown version``."""
    try:
        return str(import_module("comfyui_version").__version__)
    except (ImportError, AttributeError):
        return "unknown version"


def loaded_families() -> list[str]:
    """Return the classes of the diffusion models that ComfyUI has loaded, e.g. ``SDXL``."""
    models = [one.model for one in loaded_patchers()]
    return sorted({type(one).__name__ for one in models if hasattr(one, "diffusion_model")})


def loaded_patchers() -> list[Any]:
    """Return ComfyUI's holders (``ModelPatcher``) of what it has on a device: diffusion models, encoders, VAEs."""
    from comfy.model_management import current_loaded_models

    return [one.model for one in current_loaded_models if one.model is not None]


def quantizations() -> list[str]:
    """Return ComfyUI's names of the forms of weights in few bits that it loads, e.g. ``float8_e4m3fn``."""
    return [*import_module("comfy.quant_ops").QUANT_ALGOS]


def host_device() -> torch.device:
    """Return the device that ComfyUI computes on."""
    from comfy.model_management import get_torch_device

    return torch.device(get_torch_device())


def beside_the_allocator(model: ModelPatcher) -> int:
    """Return bytes of weights that dynamic VRAM holds on a MODEL's device, which torch's allocator does not count."""
    found = sum(
        patcher.loaded_size() - patcher.model.model_loaded_weight_memory
        for patcher in loaded_patchers()
        if patcher.load_device == model.load_device and patcher.is_dynamic()
    )
    return int(found)


def memory_of(vae: Any, samples: torch.Tensor) -> tuple[float, float]:
    """Return the bytes that a VAE takes to decode at once, by ComfyUI's estimate, and those that are free now."""
    from comfy.model_management import get_free_memory

    return vae.memory_used_decode(samples.shape, vae.vae_dtype), get_free_memory(vae.device)


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


MINIMUM_VERSION, NEWEST_TESTED = "0.27", "0.33.0"

_REQUIRED = (
    "comfy.patcher_extension:WrappersMP.APPLY_MODEL",
    "comfy.patcher_extension:CallbacksMP.ON_PRE_RUN",
    "comfy.patcher_extension:CallbacksMP.ON_CLEANUP",
    "comfy.model_patcher:ModelPatcher.set_attachments",
    "comfy.model_patcher:ModelPatcher.remove_wrappers_with_key",
    "comfy.ldm.modules.attention:wrap_attn",
    "comfy.ops:scaled_dot_product_attention",
    "comfy.quant_ops:TensorWiseINT8Layout",
)
"""Without these there are no nodes at all. The last one came with 0.27, whose life cycle of models (dynamic VRAM,
clones) is the oldest that this pack was run against."""


def missing(touch: str) -> str:
    """Return why ``module:attribute.attribute`` is not there; empty if it is."""
    module, _, path = touch.partition(":")
    try:
        reduce(getattr, path.split("."), import_module(module))
    except (ImportError, AttributeError) as error:
        return f"{touch} is missing ({error})"
    return ""


def require_host() -> None:
    """Raise `HostTooOld`, naming what is missing, why, and what helps, if this ComfyUI lacks what all nodes need."""
    fault = next(filter(None, map(missing, _REQUIRED)), "")
    if fault:
        raise HostTooOld(
            f"This ComfyUI ({host_version()}) lacks what Paceline needs: {fault}.",
            f"Paceline needs ComfyUI {MINIMUM_VERSION} or newer, and was tested with versions up to {NEWEST_TESTED}: "
            "update ComfyUI or Paceline, install what ComfyUI's requirements.txt names, and restart it.",
        )
