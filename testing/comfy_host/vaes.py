"""VAEs with random weights, small, through ComfyUI's own VAE class. Needs ``in_process.bootstrap()``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from unittest.mock import patch

import torch

from .checkpoints import taesd_state_dict
from .weights import random_state_dict


def _gain(name: str) -> float:
    return 0.5 if name.endswith(("conv2.weight", "proj_out.weight", "residual.6.weight")) else 1.0


def _random(network: Any, seed: int) -> dict[str, torch.Tensor]:
    return random_state_dict(network.state_dict(), seed, gain=_gain)


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
    """Return a VAE with SD's AutoencoderKL, narrow.

    Args:
        seed: of the weights.
        width: channels of every level (SD: 128, 256, 512, 512); a multiple of 32.
        levels: resolutions; the latent is smaller by 2 to the power of ``levels - 1`` (SD: 8).
        channels: of the latent.
    """
    import comfy.ldm.models.autoencoder
    import comfy.sd

    config = {
        "double_z": True,
        "z_channels": channels,
        "resolution": 256,
        "in_channels": 3,
        "out_ch": 3,
        "ch": width,
        "ch_mult": [1] * levels,
        "num_res_blocks": 1,
        "attn_resolutions": [],
        "dropout": 0.0,
    }
    parameters = {"ddconfig": config, "embed_dim": channels}
    with torch.device("meta"):
        shapes = comfy.ldm.models.autoencoder.AutoencoderKL(**parameters)
    vae = comfy.sd.VAE(sd=_random(shapes, seed), config={"params": parameters}, dtype=torch.float32)
    vae.upscale_ratio = vae.downscale_ratio = 2 ** (levels - 1)
    vae.latent_channels = channels
    return vae


def sd15(seed: int = 0, latent_channels: int = 4, dtype: torch.dtype | None = torch.float32) -> Any:
    """Return a VAE of SD 1.5's full size; with 16 latent channels and no quantising convolutions it is Flux's.

    ``dtype`` is what it computes in; None leaves that to ComfyUI.
    """
    import comfy.sd

    weights = sd15_state_dict(seed, latent_channels)
    if latent_channels == 16:
        weights = {name: value for name, value in weights.items() if "quant_conv" not in name}
    return comfy.sd.VAE(sd=weights, dtype=dtype)


def sd15_state_dict(seed: int = 0, latent_channels: int = 4) -> dict[str, torch.Tensor]:
    """Return random weights of a VAE of SD 1.5's full size."""
    import comfy.ldm.models.autoencoder

    config = {
        "double_z": True,
        "z_channels": latent_channels,
        "resolution": 256,
        "in_channels": 3,
        "out_ch": 3,
        "ch": 128,
        "ch_mult": [1, 2, 4, 4],
        "num_res_blocks": 2,
        "attn_resolutions": [],
        "dropout": 0.0,
    }
    with torch.device("meta"):
        network = comfy.ldm.models.autoencoder.AutoencoderKL(ddconfig=config, embed_dim=latent_channels)
    return _random(network, seed)


def taesd(seed: int = 0) -> Any:
    """Return a VAE with a TAESD."""
    import comfy.sd

    return comfy.sd.VAE(sd=taesd_state_dict(seed), dtype=torch.float32)


def wan(seed: int = 0, width: int = 8) -> Any:
    """Return a VAE with Wan 2.1's (and Qwen-Image's) network, narrow (Wan: 96)."""
    import comfy.ldm.wan.vae
    import comfy.sd

    with torch.device("meta"):
        network = comfy.ldm.wan.vae.WanVAE(
            dim=width,
            z_dim=16,
            dim_mult=[1, 2, 4, 4],
            num_res_blocks=2,
            attn_scales=[],
            temperal_downsample=[False, True, True],
        )
    return comfy.sd.VAE(sd=_random(network, seed), dtype=torch.float32)


def ltx(seed: int = 0, config: Mapping[str, Any] | None = None) -> Any:
    """Return a VAE with LTX-Video's network, tiny; it decodes in chunks into a buffer that it is given."""
    import json

    import comfy.ldm.lightricks.vae.causal_video_autoencoder as lightricks
    import comfy.sd

    config = config or {
        "_class_name": "CausalVideoAutoencoder",
        "dims": 3,
        "in_channels": 3,
        "out_channels": 3,
        "latent_channels": 128,
        "blocks": [["res_x", 1], ["compress_all", 1], ["res_x", 1]],
        "scaling_factor": 1.0,
        "norm_layer": "pixel_norm",
        "patch_size": 4,
        "latent_log_var": "uniform",
        "use_quant_conv": False,
        "causal_decoder": False,
    }
    with torch.device("meta"):
        network = lightricks.VideoVAE(version=0, config=dict(config))
    metadata = {"config": json.dumps({"vae": config})}
    return comfy.sd.VAE(sd=_random(network, seed), metadata=metadata, dtype=torch.float32)


def h3(seed: int = 0, heads: int = 2, layers: int = 3) -> Any:
    """Return a VAE with MiniMax H3's network for videos, which decodes with a transformer and cuts tiles itself.

    ``heads`` of 64 channels and ``layers``: of the decoder (H3: 32 and 36).
    """
    import comfy.ldm.minimax.vae as minimax
    import comfy.sd

    whole = minimax.MiniMaxH3VideoVAE

    def small() -> Any:
        with patch.object(minimax, "ViT3DDecoder", lambda **sizes: decoder(**sizes, heads=heads, num_layers=layers)):
            return whole(ch=32, ch_mult=(1, 1, 1, 1, 1, 1), num_res_blocks=1, tile_size=64, tile_overlap_min=16)

    decoder = minimax.ViT3DDecoder
    with torch.device("meta"):
        weights = _random(small(), seed)
    weights |= {"latents_mean": torch.tensor(minimax.LATENTS_MEAN), "latents_std": torch.tensor(minimax.LATENTS_STD)}
    with patch.object(minimax, "MiniMaxH3VideoVAE", small):
        return comfy.sd.VAE(sd=weights, dtype=torch.float32)
