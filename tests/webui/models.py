"""Checkpoints with random weights as Stable Diffusion WebUI and Forge load them: half precision, with a full VAE."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from comfy_host import checkpoints, vaes
from comfy_host.weights import random_state_dict, unet_gain


def small(path: Path) -> Path:
    """Write SD 1.5's layout with two levels, and return its path."""
    return checkpoints.sd15(path, dtype=torch.float16, vae=_half_vae)


def refiner(path: Path) -> Path:
    """Write the same with weights that are smaller in the last layer."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(small(path))
    tensors["model.diffusion_model.out.2.weight"] *= 0.5
    save_file(tensors, path)
    return path


def strong_lora(path: Path) -> Path:
    """Write a LoRA that fits ``small`` and changes pictures visibly."""
    return checkpoints.lora(path, strength=2.0)


def sdxl(path: Path) -> Path:
    """Write SDXL's 70 self-attention blocks, all of the first level's width, with its two text encoders."""
    import comfy.sdxl_clip
    import comfy.supported_models
    from safetensors.torch import save_file

    config: dict[str, Any] = checkpoints.SDXL_CONFIG | {"model_channels": 320, "channel_mult": [1, 1, 1]}
    kind, half = comfy.supported_models.SDXL, torch.float16
    shapes = checkpoints._base_model(kind, config, half, "meta").diffusion_model.state_dict()
    tensors = {f"model.diffusion_model.{name}": value for name, value in _random(shapes, unet_gain).items()}
    for name, value in checkpoints._clip_l_state_dict(0, half).items():
        tensors[f"conditioner.embedders.0.transformer.{name}"] = value
    with torch.device("meta"):
        shapes = comfy.sdxl_clip.SDXLClipG(device="meta").transformer.state_dict()
    for name, value in _random(shapes, _text_gain).items():
        tensors[f"conditioner.embedders.1.model.transformer.{name}"] = value
    tensors |= {f"first_stage_model.{name}": value for name, value in _half_vae(0).items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path)
    return path


def _random(shapes: dict[str, torch.Tensor], gain: Any) -> dict[str, torch.Tensor]:
    return random_state_dict(shapes, 0, torch.float16, gain)


def _text_gain(name: str) -> float:
    return 0.02 if "embedding" in name or name.endswith(("out_proj.weight", "fc2.weight")) else 1.0


def _half_vae(seed: int) -> dict[str, torch.Tensor]:
    return {name: tensor.half() for name, tensor in vaes.sd15_state_dict(seed).items()}
