"""Files with random weights that ComfyUI's loaders take for Flux: a diffusion model and its VAE, small.

The text encoder that goes with them is CLIP-L, the one of ``checkpoints.sd15``: T5 has a fixed size, which is large.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from .cached import generated
from .checkpoints import _base_model, taesd_state_dict
from .weights import random_state_dict, save, unet_gain

CLIP_L_CHANNELS = 768
FLUX_CONFIG: dict[str, Any] = {
    "in_channels": 16,
    "out_channels": 16,
    "vec_in_dim": CLIP_L_CHANNELS,
    "context_in_dim": CLIP_L_CHANNELS,
    "hidden_size": 128,
    "mlp_ratio": 4.0,
    "num_heads": 1,
    "depth": 2,
    "depth_single_blocks": 2,
    "axes_dim": [16, 56, 56],
    "theta": 10000,
    "patch_size": 2,
    "qkv_bias": True,
    "guidance_embed": True,
    "txt_ids_dims": [],
}
"""Flux.1 dev with one attention head instead of 24 and two blocks of each kind; ComfyUI detects the rest."""


def flux(path: Path, seed: int = 0) -> Path:
    """Write a diffusion model for UNETLoader and return its path."""
    import comfy.supported_models

    base = _base_model(comfy.supported_models.Flux, dict(FLUX_CONFIG), torch.float32, "meta")
    return save(random_state_dict(base.diffusion_model.state_dict(), seed, torch.float32, unet_gain), path)


def flux_vae(path: Path) -> Path:
    """Write a TAESD with Flux's 16 latent channels for VAELoader and return its path."""
    import comfy.taesd.taesd

    with torch.device("meta"):
        shapes = comfy.taesd.taesd.TAESD(latent_channels=16).state_dict()
    weights = random_state_dict(shapes, seed=0, gain=lambda name: 0.5 if ".conv.4." in name else 1.2)
    weights |= {name: value for name, value in taesd_state_dict().items() if value.shape == weights[name].shape}
    return save(weights, path)


def flux_files() -> tuple[Path, Path]:
    """Return the diffusion model and the VAE, made once. Needs ``in_process.bootstrap()``."""
    folder = generated("sd15").parent
    return flux(folder / "random_flux.safetensors"), flux_vae(folder / "random_flux_vae.safetensors")
