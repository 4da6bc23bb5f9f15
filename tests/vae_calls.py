"""What VAEs are given in tests, and calls of them as ComfyUI makes them."""

from __future__ import annotations

import torch


def latent(height=8, width=12, batch=1, channels=4, frames=None):
    size = (batch, channels, height, width) if frames is None else (batch, channels, frames, height, width)
    return torch.randn(size, generator=torch.Generator().manual_seed(height * width))


def image(height=64, width=96, batch=1):
    return torch.rand(batch, height, width, 3, generator=torch.Generator().manual_seed(height * width))


def decode(vae, samples, **tiling):
    with torch.inference_mode():  # as ComfyUI runs its nodes
        return vae.decode_tiled(samples.clone(), **tiling) if tiling else vae.decode(samples.clone())


def encode(vae, pixels, **tiling):
    with torch.inference_mode():
        return vae.encode_tiled(pixels.clone(), **tiling) if tiling else vae.encode(pixels.clone())
