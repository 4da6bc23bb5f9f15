"""Networks of named architectures with random weights, built from their configurations without any download.

``width`` is the number of channels of a UNet's first level, 320 in SD 1.5 and SDXL; everything is narrowed as it is.
Every kind of block is there, with fewer layers, but for SDXL at its real width, which is whole.
"""

from __future__ import annotations

import math
from typing import Any

REAL_WIDTH = 320
_HEADS = {"attention_head_dim": 16, "num_attention_heads": 2}
"""Of transformers: FLUX.1 has 24 of 128 channels, SD3 24 of 64."""


def scaled(channels: int, width: int, multiple: int = 8) -> int:
    """Return a number of channels narrowed as ``width`` is, a multiple of ``multiple``."""
    return max(multiple, round(channels * width / REAL_WIDTH / multiple) * multiple)


def made(name: str, **options: Any) -> Any:
    """Return an object of a class of diffusers, which takes long to import."""
    import diffusers

    return getattr(diffusers, name)(**options)


def _levels(first: int, factors: tuple[int, ...], layers: int) -> dict[str, Any]:
    channels = tuple(first * factor for factor in factors)
    return {"block_out_channels": channels, "layers_per_block": layers, "norm_num_groups": math.gcd(32, first)}


def sd15_unet(width: int, in_channels: int = 4) -> Any:
    """Return SD 1.5's UNet: attention at the latent's size and at 1/2 and 1/4 of it, 8 heads everywhere."""
    return made("UNet2DConditionModel", sample_size=64, in_channels=in_channels, **_sd15(width))


def sd15_controlnet(width: int) -> Any:
    """Return a ControlNet that fits ``sd15_unet``."""
    return made("ControlNetModel", conditioning_embedding_out_channels=(8, 8, 16, 16), **_sd15(width))


def _sd15(width: int) -> dict[str, Any]:
    return {
        **_levels(width, (1, 2, 4, 4), 1),
        "cross_attention_dim": scaled(768, width),
        "attention_head_dim": 8 if width % 64 == 0 else 2,  # diffusers means the number of heads by that
    }


def sdxl_unet(width: int, ssd1b: bool = False) -> Any:
    """Return SDXL's UNet: 2 and 10 transformer blocks at 1/2 and 1/4 of the latent's size, heads of 64 channels.

    With ``ssd1b`` SSD-1B's: no block in the middle, and a number of transformer blocks for each layer.
    """
    blocks = [1, 2, 10] if width == REAL_WIDTH else [1, 1, 2]
    options: dict[str, Any] = {"transformer_layers_per_block": blocks}
    if ssd1b:
        options = {
            "mid_block_type": None,
            "transformer_layers_per_block": [[1, 1], [1, 1], [2, 1]],
            "reverse_transformer_layers_per_block": [[1, 1, 2], [1, 1, 1], 1],
        }
    times = scaled(256, width)
    return made(
        "UNet2DConditionModel",
        sample_size=128,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=[max(1, width * factor // 64) for factor in (1, 2, 4)],
        cross_attention_dim=scaled(2048, width),
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=times,
        projection_class_embeddings_input_dim=scaled(1280, width) + 6 * times,
        **_levels(width, (1, 2, 4), 2),
        **options,
    )


def if_unet(width: int, stage: int) -> Any:
    """Return a UNet of DeepFloyd IF's layout: text among the keys of self-attention, a variance beside the noise.

    Stage 1 makes 64 x 64 pixels; stage 2 enlarges and is told how noisy the small image was made. The widths are ours.
    """
    return made(
        "UNet2DConditionModel",
        sample_size=64 if stage == 1 else 256,
        in_channels=3 if stage == 1 else 6,
        out_channels=6,
        **_levels(width, (1, 2, 3), 1),
        down_block_types=("ResnetDownsampleBlock2D", "SimpleCrossAttnDownBlock2D", "SimpleCrossAttnDownBlock2D"),
        mid_block_type="UNetMidBlock2DSimpleCrossAttn",
        up_block_types=("SimpleCrossAttnUpBlock2D", "SimpleCrossAttnUpBlock2D", "ResnetUpsampleBlock2D"),
        attention_head_dim=64 if width % 64 == 0 else 8,
        cross_attention_dim=scaled(1024, width, 32),  # a norm of 32 groups comes before the keys
        encoder_hid_dim=scaled(4096, width, 32),
        cross_attention_norm="group_norm",
        act_fn="gelu",
        resnet_time_scale_shift="scale_shift",
        addition_embed_type="text",
        addition_embed_type_num_heads=4,
        class_embed_type=None if stage == 1 else "timestep",
    )


def upscaler_unet(width: int) -> Any:
    """Return the UNet of Stability's upscaler, which is told how noisy the small picture was made."""
    return made(
        "UNet2DConditionModel",
        in_channels=7,
        **_levels(width, (1, 2, 2, 4), 1),
        down_block_types=("DownBlock2D",) + ("CrossAttnDownBlock2D",) * 3,
        up_block_types=("CrossAttnUpBlock2D",) * 3 + ("UpBlock2D",),
        only_cross_attention=(True, True, True, False),
        cross_attention_dim=scaled(1024, width),
        num_class_embeds=1000,
        use_linear_projection=True,
    )


def autoencoder(width: int, factors: tuple[int, ...] = (1, 2, 4, 4), **options: Any) -> Any:
    """Return the VAE of the Stable Diffusion family: 8 pixels for a latent, attention in the middle.

    It has 2/5 of the UNet's channels; ``factors`` are those of each level as multiples of the first.
    """
    return made(
        "AutoencoderKL",
        **_levels(scaled(128, width), factors, 2 if width == REAL_WIDTH else 1),
        down_block_types=("DownEncoderBlock2D",) * len(factors),
        up_block_types=("UpDecoderBlock2D",) * len(factors),
        **{"latent_channels": 4, "sample_size": 512, **options},
    )


def flow_autoencoder(width: int, scaling: float, shift: float) -> Any:
    """Return the VAE of SD3 and FLUX.1: 16 channels, no convolutions around the latent."""
    plain = {"use_quant_conv": False, "use_post_quant_conv": False}
    return autoencoder(width, latent_channels=16, scaling_factor=scaling, shift_factor=shift, **plain)


def upscaler_autoencoder(width: int) -> Any:
    """Return the VAE of Stability's upscaler: 4 pixels for a latent."""
    return autoencoder(width, (1, 2, 4), scaling_factor=0.08333, sample_size=256)


def flux_transformer(width: int) -> Any:
    """Return FLUX.1-dev's transformer: double and single blocks, two of each (19 and 38)."""
    return made(
        "FluxTransformer2DModel",
        in_channels=64,
        num_layers=2,
        num_single_layers=2,
        joint_attention_dim=scaled(4096, width),
        pooled_projection_dim=scaled(768, width),
        guidance_embeds=True,
        axes_dims_rope=(4, 6, 6),
        **_HEADS,
    )


def sd3_transformer(width: int) -> Any:
    """Return SD3 Medium's transformer, two blocks (24)."""
    return made(
        "SD3Transformer2DModel",
        sample_size=128,
        in_channels=16,
        out_channels=16,
        num_layers=2,
        caption_projection_dim=32,
        joint_attention_dim=scaled(4096, width),
        pooled_projection_dim=scaled(2048, width),
        pos_embed_max_size=192,
        **_HEADS,
    )


def z_image_transformer(width: int) -> Any:
    """Return Z-Image's transformer, two blocks (30); it is given its latents and texts in lists."""
    import torch

    net = made(
        "ZImageTransformer2DModel",
        dim=32,
        n_layers=2,
        n_refiner_layers=1,
        n_heads=2,
        n_kv_heads=2,
        cap_feat_dim=scaled(2560, width),
        axes_dims=[8, 4, 4],
        axes_lens=[1024, 128, 128],
    )
    for token in (net.x_pad_token, net.cap_pad_token):  # not drawn when it is made
        torch.nn.init.normal_(token)
    return net
