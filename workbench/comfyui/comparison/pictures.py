"""Latents become pictures: through a VAE, or roughly without one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ....core.errors import UnsupportedModel
from ....optimizers.hosts.comfyui.model import describe_model
from ...measurement import to_8_bit


def decode(vae: Any, latent: Tensor) -> Tensor:
    """Decode as the VAE Decode node does.

    Returns:
        Images ``[pictures, height, width, channels]`` in [0, 1]; the frames of a video follow each other.
    """
    images: Tensor = vae.decode(latent)
    return images.flatten(0, -4) if images.ndim > 4 else images  # [batch, frames, ...] -> [batch * frames, ...]


def preview(model: Any, latent: Tensor) -> Tensor:
    """Return the rough colours that ComfyUI's live preview shows, one pixel for each place of the latent.

    Args:
        model: the MODEL that the latent is of.
        latent: ``[batch, channels, (frames,) height, width]``.

    Raises:
        UnsupportedModel: if ComfyUI knows no colours for latents of this kind.
    """
    kind = model.get_model_object("latent_format")
    if not getattr(kind, "latent_rgb_factors", None):
        raise UnsupportedModel(
            f"ComfyUI has no preview colours for the latents of {describe_model(model)}, so there is no picture to "
            "compare.",
            "Connect a VAE to the node.",
        )
    latent = kind.process_in(latent.float())
    reshape = getattr(kind, "latent_rgb_factors_reshape", None)
    latent = latent if reshape is None else reshape(latent)
    factors = torch.tensor(kind.latent_rgb_factors)  # [channels, 3]
    pixels = latent.movedim(1, -1) @ factors
    if getattr(kind, "latent_rgb_factors_bias", None) is not None:
        pixels = pixels + torch.tensor(kind.latent_rgb_factors_bias)
    pixels = (pixels + 1) / 2
    return pixels.flatten(0, -4) if pixels.ndim > 4 else pixels


def as_bytes(images: Tensor) -> Tensor:
    """Return pictures as they are saved: uint8 ``[pictures, height, width, 3]``."""
    images = images[..., :3]
    return to_8_bit(images if images.shape[-1] == 3 else images[..., :1].expand(*images.shape[:-1], 3))


def trouble(images: Tensor, whose: str) -> str:
    """Return what is wrong if these are no pictures at all, else an empty text."""
    if not images.isfinite().all():
        return f"The {whose} image has values that are not numbers (NaN or infinite)"
    if images.float().amax() == images.float().amin():
        return f"The {whose} image is one flat colour"
    return ""
