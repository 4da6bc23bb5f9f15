"""Small diffusers pipelines with random weights, and the arguments of a call. Always the same weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_TEXT, _POOLED = 32, 24
_BETAS = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "steps_offset": 1}


def _vae(latent_channels: int = 4, **options: Any) -> Any:
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        block_out_channels=(16, 32),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        layers_per_block=1,
        norm_num_groups=8,
        latent_channels=latent_channels,
        **options,
    )


_UNET: dict[str, Any] = {
    "block_out_channels": (32, 64, 64),
    "layers_per_block": 1,
    "cross_attention_dim": _TEXT,
    "attention_head_dim": 2,
    "norm_num_groups": 16,
}


def _sd15(control: bool = False) -> Any:
    import diffusers

    blocks = ("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D")
    parts: dict[str, Any] = {
        "vae": _vae(),
        "unet": diffusers.UNet2DConditionModel(
            sample_size=32,
            down_block_types=blocks,
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
            **_UNET,
        ),
        "scheduler": diffusers.PNDMScheduler(**_BETAS, skip_prk_steps=True),
        **dict.fromkeys(("text_encoder", "tokenizer", "safety_checker", "feature_extractor")),
    }
    if not control:
        return diffusers.StableDiffusionPipeline(**parts, requires_safety_checker=False)
    # The hint is as large as the picture; the latent of this VAE is half as wide.
    parts["controlnet"] = diffusers.ControlNetModel(
        down_block_types=blocks, conditioning_embedding_out_channels=(8, 16), **_UNET
    )
    with torch.no_grad():
        for layer in (*parts["controlnet"].controlnet_down_blocks, parts["controlnet"].controlnet_mid_block):
            torch.nn.init.normal_(layer.weight, std=0.1)  # made as zeros, which would hide what is computed
    return diffusers.StableDiffusionControlNetPipeline(**parts, requires_safety_checker=False)


def _sdxl() -> Any:
    import diffusers

    unet = diffusers.UNet2DConditionModel(
        sample_size=32,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        transformer_layers_per_block=[1, 1, 2],
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=_POOLED + 6 * 8,
        **_UNET,
    )
    return diffusers.StableDiffusionXLPipeline(
        vae=_vae(),
        unet=unet,
        scheduler=diffusers.EulerDiscreteScheduler(**_BETAS),
        **dict.fromkeys(("text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2")),
        add_watermarker=False,
    )


_TRANSFORMER: dict[str, Any] = {
    "num_layers": 2,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": _TEXT,
    "pooled_projection_dim": _POOLED,
}
_NO_QUANTIZER = {"use_quant_conv": False, "use_post_quant_conv": False, "shift_factor": 0.1}


def _flux() -> Any:
    import diffusers

    return diffusers.FluxPipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        vae=_vae(16, **_NO_QUANTIZER),
        transformer=diffusers.FluxTransformer2DModel(
            in_channels=64, num_single_layers=2, guidance_embeds=True, axes_dims_rope=(4, 6, 6), **_TRANSFORMER
        ),
        **dict.fromkeys(("text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2")),
    )


def _sd3() -> Any:
    import diffusers

    return diffusers.StableDiffusion3Pipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=_vae(16, **_NO_QUANTIZER),
        transformer=diffusers.SD3Transformer2DModel(
            sample_size=32, in_channels=16, out_channels=16, caption_projection_dim=32, pos_embed_max_size=96,
            **_TRANSFORMER,
        ),
        **dict.fromkeys(f"{kind}{number}" for kind in ("text_encoder", "tokenizer") for number in ("", "_2", "_3")),
    )  # fmt: skip


_MAKERS: dict[str, Callable[[], Any]] = {
    "sd15": _sd15,
    "sd15 controlnet": lambda: _sd15(control=True),
    "sdxl": _sdxl,
    "flux": _flux,
    "sd3": _sd3,
}
PIPELINES = tuple(_MAKERS)


def pipeline(name: str) -> Any:
    """Return a pipeline of ``PIPELINES`` in evaluation mode, the same weights each time."""
    torch.manual_seed(0)
    pipe = _MAKERS[name]()
    for part in pipe.components.values():
        if isinstance(part, torch.nn.Module):
            part.train(False)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def draw(pipe: Any, name: str, steps: int = 2, size: int = 64) -> torch.Tensor:
    """Return float pictures ``[2, 3, size, size]`` for two prompts, given as random embeddings."""
    generator = torch.Generator().manual_seed(1)
    like = pipe.vae.dtype  # text encoders give their own dtype; what a pipeline hands on must fit its VAE
    words = {key: torch.randn(2, 20, _TEXT, generator=generator).to(like) for key in ("", "negative_")}
    pooled = {key: torch.randn(2, _POOLED, generator=generator).to(like) for key in ("", "negative_")}
    arguments: dict[str, Any] = {f"{key}prompt_embeds": value for key, value in words.items()}
    if not name.startswith("sd15"):
        arguments |= {f"{key}pooled_prompt_embeds": value for key, value in pooled.items()}
    if name == "flux":
        arguments = {key: value for key, value in arguments.items() if not key.startswith("negative")}
    if name == "sd15 controlnet":
        arguments["image"] = torch.rand(2, 3, size, size, generator=generator)
    noise = torch.Generator().manual_seed(7)
    options = {"num_inference_steps": steps, "height": size, "width": size, "generator": noise, "output_type": "pt"}
    pictures: torch.Tensor = pipe(**arguments, **options).images
    return pictures
