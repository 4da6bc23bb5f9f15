"""What ComfyUI says of itself and of the machine: its version, its device, and whether that has room for recordings."""

from __future__ import annotations

from importlib import import_module

import torch

BESIDE_THE_WEIGHTS = 4 * 2**30
"""Bytes for the steps of a run at the usual sizes, and for the recording, which keeps as much for itself."""


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


def leaves_room_for_recordings(device: torch.device, size: int) -> bool:
    """Return whether a model of ``size`` bytes fits whole on an NVIDIA GPU, with room left to record its steps.

    Where ComfyUI loads a part of it only, nothing is compiled or recorded; and a recording that takes the last memory
    would make ComfyUI load less of the model.
    """
    from comfy import model_management

    whole = ("NORMAL_VRAM", "HIGH_VRAM")
    if device.type != "cuda" or torch.version.hip is not None or model_management.vram_state.name not in whole:
        return False
    return bool(size + BESIDE_THE_WEIGHTS <= model_management.get_total_memory(device))
