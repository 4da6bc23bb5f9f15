"""Pipelines of the named architectures, put together from networks with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import architectures


def _scheduler(name: str, **options: Any) -> Any:
    """Return a scheduler with its tables on the CPU, as ``from_pretrained`` has them, whatever the default device."""
    import diffusers

    with torch.device("cpu"):
        return getattr(diffusers, name)(**options)


def stable_diffusion(name: str, in_channels: int = 4, control: bool = False) -> Callable[[int], Any]:
    """Return what makes an SD 1.5 pipeline of class ``name`` of a width."""

    def make(width: int) -> Any:
        import diffusers

        parts: dict[str, Any] = {
            "vae": architectures.autoencoder(width),
            "unet": architectures.sd15_unet(width, in_channels),
            "scheduler": _scheduler(
                "PNDMScheduler",
                beta_start=0.00085,
                beta_end=0.012,
                beta_schedule="scaled_linear",
                skip_prk_steps=True,
                steps_offset=1,
            ),
            **dict.fromkeys(("text_encoder", "tokenizer", "safety_checker", "feature_extractor")),
        }
        if control:
            parts["controlnet"] = architectures.sd15_controlnet(width)
        return getattr(diffusers, name)(**parts, requires_safety_checker=False)

    return make


def sdxl(ssd1b: bool) -> Callable[[int], Any]:
    """Return what makes an SDXL pipeline of a width; with ``ssd1b`` its distilled relative of that name."""

    def make(width: int) -> Any:
        import diffusers

        return diffusers.StableDiffusionXLPipeline(
            vae=architectures.autoencoder(width, scaling=0.13025),
            unet=architectures.sdxl_unet(width, ssd1b),
            scheduler=_scheduler(
                "EulerDiscreteScheduler",
                beta_start=0.00085,
                beta_end=0.012,
                beta_schedule="scaled_linear",
                steps_offset=1,
            ),
            **dict.fromkeys(("text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2")),
            add_watermarker=False,
        )

    return make


def deepfloyd_if(stage: int) -> Callable[[int], Any]:
    """Return what makes a pipeline of one of DeepFloyd IF's three stages of a width."""

    def make(width: int) -> Any:
        import diffusers

        schedule: dict[str, Any] = {
            "beta_schedule": "squaredcos_cap_v2", "variance_type": "learned_range", "thresholding": True,
            "dynamic_thresholding_ratio": 0.95, "sample_max_value": 1.5,
        }  # fmt: skip
        if stage == 3:
            # DeepFloyd never published its own third stage; diffusers' example uses Stability's upscaler in its place.
            return diffusers.StableDiffusionUpscalePipeline(
                vae=architectures.upscaler_autoencoder(width),
                unet=architectures.upscaler_unet(width),
                low_res_scheduler=_scheduler("DDPMScheduler"),
                scheduler=_scheduler("DDIMScheduler", prediction_type="v_prediction"),
                **dict.fromkeys(("text_encoder", "tokenizer")),
            )
        parts: dict[str, Any] = {
            "unet": architectures.if_unet(width, stage),
            "scheduler": _scheduler("DDPMScheduler", **schedule),
            **dict.fromkeys(("text_encoder", "tokenizer", "safety_checker", "feature_extractor", "watermarker")),
        }
        if stage == 1:
            return diffusers.IFPipeline(**parts, requires_safety_checker=False)
        return diffusers.IFSuperResolutionPipeline(
            **parts, image_noising_scheduler=_scheduler("DDPMScheduler", **schedule), requires_safety_checker=False
        )

    return make


def flux(width: int) -> Any:
    """Return a FLUX.1-dev pipeline."""
    import diffusers

    return diffusers.FluxPipeline(
        scheduler=_scheduler("FlowMatchEulerDiscreteScheduler", use_dynamic_shifting=True),
        vae=architectures.autoencoder(width, 16, 0.3611, 0.1159),
        transformer=architectures.flux_transformer(width),
        **dict.fromkeys(("text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2")),
    )


def sd3(width: int) -> Any:
    """Return an SD3 pipeline."""
    import diffusers

    texts = ("text_encoder", "text_encoder_2", "text_encoder_3", "tokenizer", "tokenizer_2", "tokenizer_3")
    return diffusers.StableDiffusion3Pipeline(
        scheduler=_scheduler("FlowMatchEulerDiscreteScheduler", shift=3.0),
        vae=architectures.autoencoder(width, 16, 1.5305, 0.0609),
        transformer=architectures.sd3_transformer(width),
        **dict.fromkeys(texts),
    )
