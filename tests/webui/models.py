"""Checkpoints with random weights as Stable Diffusion WebUI and Forge load them: half precision, with a full VAE."""

from __future__ import annotations

from pathlib import Path

import torch
from comfy_host import checkpoints, vaes


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


def _half_vae(seed: int) -> dict[str, torch.Tensor]:
    return {name: tensor.half() for name, tensor in vaes.sd15_state_dict(seed).items()}
