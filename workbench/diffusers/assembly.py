"""Pipelines of the named architectures, put together from networks with random weights."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from . import architectures
from .architectures import made

_STABLE_DIFFUSION = {
    "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "steps_offset": 1,
}  # fmt: skip
_DEEPFLOYD_IF = {
    "beta_schedule": "squaredcos_cap_v2", "variance_type": "learned_range", "thresholding": True,
    "dynamic_thresholding_ratio": 0.95, "sample_max_value": 1.5,
}  # fmt: skip


def stable_diffusion(name: str, width: int, in_channels: int = 4, control: bool = False) -> Any:
    """Return an SD 1.5 pipeline of the class ``name``."""
    parts = {
        "vae": architectures.autoencoder(width),
        "unet": architectures.sd15_unet(width, in_channels),
        "scheduler": _scheduler("PNDMScheduler", **_STABLE_DIFFUSION, skip_prk_steps=True),
    }
    if control:
        parts["controlnet"] = architectures.sd15_controlnet(width)
    return _pipeline(name, **parts, requires_safety_checker=False)


def sdxl(name: str, width: int, ssd1b: bool = False) -> Any:
    """Return an SDXL pipeline; with ``ssd1b`` its distilled relative of that name."""
    return _pipeline(
        name,
        vae=architectures.autoencoder(width, scaling_factor=0.13025),
        unet=architectures.sdxl_unet(width, ssd1b),
        scheduler=_scheduler("EulerDiscreteScheduler", **_STABLE_DIFFUSION),
        add_watermarker=False,
    )


def deepfloyd_if(name: str, width: int, stage: int) -> Any:
    """Return a pipeline of DeepFloyd IF's first or second stage."""
    parts = {
        "unet": architectures.if_unet(width, stage),
        "scheduler": _scheduler("DDPMScheduler", **_DEEPFLOYD_IF),
    }
    if stage == 2:
        parts["image_noising_scheduler"] = _scheduler("DDPMScheduler", **_DEEPFLOYD_IF)
    return _pipeline(name, **parts, requires_safety_checker=False)


def upscaler(name: str, width: int) -> Any:
    """Return Stability's upscaler, which diffusers' example of DeepFloyd IF has in the place of its own third stage."""
    return _pipeline(
        name,
        vae=architectures.upscaler_autoencoder(width),
        unet=architectures.upscaler_unet(width),
        low_res_scheduler=_scheduler("DDPMScheduler"),
        scheduler=_scheduler("DDIMScheduler", prediction_type="v_prediction"),
    )


def flux(name: str, width: int) -> Any:
    """Return a FLUX.1-dev pipeline."""
    return _pipeline(
        name,
        vae=architectures.flow_autoencoder(width, 0.3611, 0.1159),
        transformer=architectures.flux_transformer(width),
        scheduler=_scheduler("FlowMatchEulerDiscreteScheduler", use_dynamic_shifting=True),
    )


def sd3(name: str, width: int) -> Any:
    """Return an SD3 pipeline."""
    return _pipeline(
        name,
        vae=architectures.flow_autoencoder(width, 1.5305, 0.0609),
        transformer=architectures.sd3_transformer(width),
        scheduler=_scheduler("FlowMatchEulerDiscreteScheduler", shift=3.0),
    )


def _pipeline(name: str, **parts: Any) -> Any:
    import diffusers

    parameters = inspect.signature(getattr(diffusers, name)).parameters.values()
    needed = [one.name for one in parameters if one.default is one.empty]
    return made(name, **{**dict.fromkeys(needed), **parts})


def _scheduler(name: str, **options: Any) -> Any:
    """Return a scheduler with its tables on the CPU, as ``from_pretrained`` has them, whatever the default device."""
    with torch.device("cpu"):
        return made(name, **options)
