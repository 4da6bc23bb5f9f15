"""Whether a device has room for a whole model and the recordings of its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from ..protocols import ModelPatcher

BESIDE_THE_WEIGHTS = 4 * 2**30
"""Bytes for the steps of a run at the usual sizes, and for the recording, which keeps as much for itself."""


def has_room_for_recordings(patcher: ModelPatcher) -> bool:
    """Return whether a MODEL is loaded whole on an NVIDIA GPU, with room left to record its steps.

    Where ComfyUI loads a part of it only, nothing is compiled or recorded; and a recording that takes the last memory
    would make ComfyUI load less of the model.
    """
    return leaves_room_for_recordings(torch.device(patcher.load_device), patcher.model_size())


def leaves_room_for_recordings(device: torch.device, size: int) -> bool:
    """Return the same for a model of ``size`` bytes, loaded or not."""
    from comfy import model_management

    whole = ("NORMAL_VRAM", "HIGH_VRAM")
    if device.type != "cuda" or torch.version.hip is not None or model_management.vram_state.name not in whole:
        return False
    return bool(size + BESIDE_THE_WEIGHTS <= model_management.get_total_memory(device))
