"""What this pack needs from ComfyUI, found by looking for it, never by comparing version numbers."""

from __future__ import annotations

from functools import reduce
from importlib import import_module

import torch

from ....core.errors import HostTooOld

MINIMUM_VERSION = "0.27"

# (module, attribute path): the interfaces the adapters stand on. The last one came with 0.27, whose life cycle of
# models (dynamic VRAM, clones) is the oldest that these adapters were run against.
_REQUIRED = (
    ("comfy.patcher_extension", "WrappersMP.APPLY_MODEL"),
    ("comfy.patcher_extension", "CallbacksMP.ON_PRE_RUN"),
    ("comfy.patcher_extension", "CallbacksMP.ON_CLEANUP"),
    ("comfy.model_patcher", "ModelPatcher.set_attachments"),
    ("comfy.model_patcher", "ModelPatcher.remove_wrappers_with_key"),
    ("comfy.ldm.modules.attention", "wrap_attn"),
    ("comfy.ops", "scaled_dot_product_attention"),
    ("comfy.quant_ops", "TensorWiseINT8Layout"),
)


def host_version() -> str:
    """Return ComfyUI's version, or ``unknown version``."""
    try:
        return str(import_module("comfyui_version").__version__)
    except (ImportError, AttributeError):
        return "unknown version"


def host_device() -> torch.device:
    """Return the device that ComfyUI computes on."""
    from comfy.model_management import get_torch_device

    return torch.device(get_torch_device())


def require_host() -> None:
    """Check that this ComfyUI has every interface the adapters use.

    Raises:
        HostTooOld: naming the interface that is missing and the version that has it.
    """
    for module, path in _REQUIRED:
        try:
            reduce(getattr, path.split("."), import_module(module))
        except (ImportError, AttributeError):
            raise HostTooOld(
                f"This ComfyUI ({host_version()}) has no {module}.{path}.",
                f"Paceline needs ComfyUI {MINIMUM_VERSION} or newer: update ComfyUI and restart it.",
            ) from None
