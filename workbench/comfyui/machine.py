"""What a preset has to know about the model and the machine."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch

from ...optimizers.hosts.comfyui.quantization import int8_gains
from ...optimizers.hosts.comfyui.unet import is_unet
from ..presets import Machine


def machine_for(patcher: Any) -> Machine:
    """Return what decides which techniques suit a MODEL on the device it runs on."""
    device = torch.device(patcher.load_device)
    return Machine(
        device=device.type,
        can_compile=device.type == "cuda" and find_spec("triton") is not None,
        fast_int8=int8_gains(patcher),
        unet=is_unet(patcher),
    )
