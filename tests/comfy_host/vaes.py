"""VAEs with random weights, through ComfyUI's own VAE class. Needs ``in_process.bootstrap()``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any
from unittest.mock import patch

import torch

from .checkpoints import taesd_state_dict
from .weights import random_state_dict

KL: dict[str, Any] = {
    "double_z": True, "resolution": 256, "in_channels": 3, "out_ch": 3, "ch": 128, "ch_mult": [1, 2, 4, 4],
    "num_res_blocks": 2, "attn_resolutions": [], "dropout": 0.0,
}  # fmt: skip
"""Stable Diffusion's autoencoder, but for the channels of its latent."""
WAN: dict[str, Any] = {
    "dim_mult": [1, 2, 4, 4], "num_res_blocks": 2, "attn_scales": [], "temperal_downsample": [False, True, True],
}  # fmt: skip
"""Wan's, but for its width and the channels of its latent."""
_LTX: dict[str, Any] = {
    "_class_name": "CausalVideoAutoencoder", "dims": 3, "in_channels": 3, "out_channels": 3, "latent_channels": 128,
    "blocks": [["res_x", 1], ["compress_all", 1], ["res_x", 1]], "scaling_factor": 1.0, "norm_layer": "pixel_norm",
    "patch_size": 4, "latent_log_var": "uniform", "use_quant_conv": False, "causal_decoder": False,
}  # fmt: skip


def _gain(name: str) -> float:
    return 0.5 if name.endswith(("conv2.weight", "proj_out.weight", "residual.6.weight")) else 1.0


def _random(network: Callable[[], Any], seed: int) -> dict[str, torch.Tensor]:
    with torch.device("meta"):
        shapes = network().state_dict()
    return random_state_dict(shapes, seed, gain=_gain)


def _weights(network: str, seed: int, **settings: Any) -> dict[str, torch.Tensor]:
    """Return random weights of a class of ``comfy.ldm``."""
    return _random(lambda: resolve_name(f"comfy.ldm.{network}")(**settings), seed)


def _vae(weights: dict[str, torch.Tensor], dtype: torch.dtype | None = torch.float32, **more: Any) -> Any:
    import comfy.sd

    return comfy.sd.VAE(sd=weights, dtype=dtype, **more)


def reloadable(make: Callable[[], Any]) -> Any:
    """Return what ``make`` makes, a VAE that can also be loaded without dynamic VRAM, as those of ComfyUI's loaders."""
    import comfy.model_patcher as patchers

    def again(disable_dynamic: bool = False) -> Any:
        kind = patchers.ModelPatcher if disable_dynamic else patchers.CoreModelPatcher
        with patch.object(patchers, "CoreModelPatcher", kind):
            return make().patcher

    vae = make()
    vae.patcher.cached_patcher_init = (again, ())
    return vae


def kl(seed: int = 0, width: int = 32, levels: int = 4, channels: int = 4) -> Any:
    """Return a VAE with SD's AutoencoderKL, narrow: ``width`` channels in each level (SD: 128, 256, 512, 512).

    The latent, of so many ``channels``, is smaller by 2 to the power of ``levels - 1`` (SD: 8).
    """
    narrow = {"z_channels": channels, "ch": width, "ch_mult": [1] * levels, "num_res_blocks": 1}
    parameters = {"ddconfig": KL | narrow, "embed_dim": channels}
    weights = _weights("models.autoencoder:AutoencoderKL", seed, **parameters)
    vae = _vae(weights, config={"params": parameters})
    vae.upscale_ratio = vae.downscale_ratio = 2 ** (levels - 1)
    vae.latent_channels = channels
    return vae


def sd15(seed: int = 0, latent_channels: int = 4, dtype: torch.dtype | None = torch.float32) -> Any:
    """Return a VAE of SD 1.5's full size; with 16 latent channels and no quantising convolutions it is Flux's.

    ``dtype`` is what it computes in; None leaves that to ComfyUI.
    """
    weights = sd15_state_dict(seed, latent_channels)
    if latent_channels == 16:
        weights = {name: value for name, value in weights.items() if "quant_conv" not in name}
    return _vae(weights, dtype)


def sd15_state_dict(seed: int = 0, latent_channels: int = 4) -> dict[str, torch.Tensor]:
    """Return random weights of a VAE of SD 1.5's full size."""
    config = KL | {"z_channels": latent_channels}
    return _weights("models.autoencoder:AutoencoderKL", seed, ddconfig=config, embed_dim=latent_channels)


def taesd(seed: int = 0) -> Any:
    """Return a VAE with a TAESD."""
    return _vae(taesd_state_dict(seed))


def wan(seed: int = 0) -> Any:
    """Return a VAE with Wan 2.1's (and Qwen-Image's) network, narrow (Wan: 96)."""
    return _vae(wan_state_dict(seed))


def wan_state_dict(seed: int = 0) -> dict[str, torch.Tensor]:
    """Return random weights of `wan`, from which ComfyUI's loader knows its network."""
    return _weights("wan.vae:WanVAE", seed, dim=8, z_dim=16, **WAN)


def ltx(seed: int = 0) -> Any:
    """Return a VAE with LTX-Video's network, tiny; it decodes in chunks into a buffer that it is given."""
    network = "lightricks.vae.causal_video_autoencoder:VideoVAE"
    metadata = {"config": json.dumps({"vae": _LTX})}
    return _vae(_weights(network, seed, version=0, config=dict(_LTX)), metadata=metadata)


def h3(seed: int = 0) -> Any:
    """Return a VAE with MiniMax H3's network for videos, which decodes with a transformer and cuts tiles itself.

    Its decoder has 2 heads of 64 channels and 3 layers (H3: 32 and 36).
    """
    import comfy.ldm.minimax.vae as minimax

    whole, decoder = minimax.MiniMaxH3VideoVAE, minimax.ViT3DDecoder

    def small(**given: Any) -> Any:  # ComfyUI hands over its operations since 0.33
        with patch.object(minimax, "ViT3DDecoder", lambda **sizes: decoder(**sizes, heads=2, num_layers=3)):
            sizes = {"ch": 32, "ch_mult": (1,) * 6, "num_res_blocks": 1, "tile_size": 64, "tile_overlap_min": 16}
            return whole(**sizes, **given)

    weights = _random(small, seed)
    weights |= {"latents_mean": torch.tensor(minimax.LATENTS_MEAN), "latents_std": torch.tensor(minimax.LATENTS_STD)}
    with patch.object(minimax, "MiniMaxH3VideoVAE", small):
        return _vae(weights)
