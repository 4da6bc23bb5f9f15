"""ComfyUI's version and its device."""

from __future__ import annotations

from importlib import import_module

import torch


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
