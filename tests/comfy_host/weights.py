"""Seeded random weights for modules that ComfyUI builds without initialising them."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

Gain = Callable[[str], float]


def _generator(seed: int, name: str, device: str) -> torch.Generator:
    # One generator per tensor: adding a layer does not change the weights of all others.
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:7], "big"))


def random_weight(name: str, shape: Iterable[int], seed: int, gain: float = 1.0, device: str = "cpu") -> torch.Tensor:
    """Return a float32 tensor for the parameter ``name``; another device has other numbers.

    Matrices and kernels keep the variance of their input (fan-in scaling) times ``gain`` squared, biases are 0, and
    the weights of norms, the only other vectors, are 1.
    """
    size = tuple(shape)
    if name.endswith("bias"):
        return torch.zeros(size, device=device)
    if len(size) < 2:
        return torch.ones(size, device=device)
    fan_in = math.prod(size[1:])
    if "embedding" in name:
        fan_in = 1
    numbers = torch.randn(size, generator=_generator(seed, name, device), device=device)
    return numbers * (gain / math.sqrt(fan_in))


def unet_gain(name: str) -> float:
    """Return the gain of a UNet parameter: branches that are added to the trunk stay smaller than the trunk."""
    if name.endswith(("out_layers.3.weight", "proj_out.weight", "zero_convs.weight")):
        return 0.5
    return 1.0


def random_state_dict(
    shapes: Mapping[str, Any], seed: int, dtype: torch.dtype = torch.float32, gain: Gain = lambda name: 1.0
) -> dict[str, torch.Tensor]:
    """Return random weights for ``shapes``, a state dict whose tensors may be on the meta device."""
    return {
        name: random_weight(name, tensor.shape, seed, gain(name)).to(dtype)
        for name, tensor in shapes.items()
        if tensor.is_floating_point()
    }


def fill(module: torch.nn.Module, seed: int, gain: Gain = unet_gain, device: str = "cpu") -> None:
    """Overwrite every parameter of ``module`` in place. ``device`` makes the numbers: a GPU needs seconds for SDXL."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(random_weight(name, parameter.shape, seed, gain(name), device))


def save(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str] | None = None) -> Path:
    """Write a safetensors file at once: a reader sees the whole file or none."""
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary, metadata)
        temporary.chmod(0o644)  # safetensors makes it private
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path
