"""Pipelines of diffusers by name, put together from networks of the real architectures with random weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from . import inputs, networks
from .inputs import Arguments
from .networks import REAL_WIDTH, made

_NOISE = {
    "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "steps_offset": 1,
}  # fmt: skip
"""Of Stable Diffusion."""
_IF_NOISE = {
    "beta_schedule": "squaredcos_cap_v2", "variance_type": "learned_range", "thresholding": True,
    "dynamic_thresholding_ratio": 0.95, "sample_max_value": 1.5,
}  # fmt: skip
"""Of DeepFloyd IF."""


@dataclass(frozen=True)
class NamedPipeline:
    """A pipeline by its name here, and how it is called; ``about`` says what it is."""

    name: str
    pipe: Any
    about: str
    arguments: Arguments = field(repr=False)

    @property
    def denoiser(self) -> Any:
        """Its UNet or transformer."""
        return getattr(self.pipe, "unet", None) or self.pipe.transformer

    def call(self, prompts: list[str], size: int, steps: int, seed: int = 0, **options: object) -> Any:
        """Return the pipeline's images of ``size`` x ``size`` pixels, one for each prompt.

        ``options`` are further arguments of the pipeline, e.g. ``output_type``.
        """
        generator = torch.Generator("cpu").manual_seed(seed)
        arguments = self.arguments(self.pipe, prompts, size)
        return self.pipe(**{"generator": generator, "num_inference_steps": steps, **arguments, **options}).images


def _stable_diffusion(width: int, in_channels: int = 4, control: bool = False) -> dict[str, Any]:
    parts = {
        "vae": networks.autoencoder(width),
        "unet": networks.sd15_unet(width, in_channels),
        "scheduler": _scheduler("PNDMScheduler", **_NOISE, skip_prk_steps=True),
        "requires_safety_checker": False,
    }
    return parts | ({"controlnet": networks.sd15_controlnet(width)} if control else {})


def _sdxl(width: int, ssd1b: bool = False) -> dict[str, Any]:
    return {
        "vae": networks.autoencoder(width, scaling_factor=0.13025),
        "unet": networks.sdxl_unet(width, ssd1b),
        "scheduler": _scheduler("EulerDiscreteScheduler", **_NOISE),
        "add_watermarker": False,
    }


def _deepfloyd_if(width: int, stage: int) -> dict[str, Any]:
    parts = {
        "unet": networks.if_unet(width, stage),
        "scheduler": _scheduler("DDPMScheduler", **_IF_NOISE),
        "requires_safety_checker": False,
    }
    return parts | ({"image_noising_scheduler": _scheduler("DDPMScheduler", **_IF_NOISE)} if stage == 2 else {})


def _upscaler(width: int) -> dict[str, Any]:
    """Return the parts of Stability's upscaler, which diffusers' example has as DeepFloyd IF's third stage."""
    return {
        "vae": networks.upscaler_autoencoder(width),
        "unet": networks.upscaler_unet(width),
        "low_res_scheduler": _scheduler("DDPMScheduler"),
        "scheduler": _scheduler("DDIMScheduler", prediction_type="v_prediction"),
    }


def _flux(width: int) -> dict[str, Any]:
    return {
        "vae": networks.flow_autoencoder(width, 0.3611, 0.1159),
        "transformer": networks.flux_transformer(width),
        "scheduler": _scheduler("FlowMatchEulerDiscreteScheduler", use_dynamic_shifting=True),
    }


def _sd3(width: int) -> dict[str, Any]:
    return {
        "vae": networks.flow_autoencoder(width, 1.5305, 0.0609),
        "transformer": networks.sd3_transformer(width),
        "scheduler": _scheduler("FlowMatchEulerDiscreteScheduler", shift=3.0),
    }


def _z_image(width: int) -> dict[str, Any]:
    return {
        "vae": networks.flow_autoencoder(width, 0.3611, 0.1159),
        "transformer": networks.z_image_transformer(width),
        "scheduler": _scheduler("FlowMatchEulerDiscreteScheduler", shift=3.0),
    }


def _scheduler(name: str, **options: Any) -> Any:
    """Return a scheduler with its tables on the CPU, as ``from_pretrained`` has them, whatever the default device."""
    with torch.device("cpu"):
        return made(name, **options)


@dataclass(frozen=True)
class Known:
    """A pipeline that can be made."""

    about: str
    pipeline_class: str
    parts: Callable[[int], dict[str, Any]]
    arguments: Arguments


_SDXL = "StableDiffusionXLPipeline"
KNOWN = {
    "sd15": Known("SD 1.5, text to image", "StableDiffusionPipeline", _stable_diffusion, inputs.stable_diffusion),
    "sd15-img2img": Known(
        "SD 1.5, image to image", "StableDiffusionImg2ImgPipeline", _stable_diffusion, inputs.image_to_image,
    ),
    "sd15-inpaint": Known(
        "SD 1.5, inpainting", "StableDiffusionInpaintPipeline", partial(_stable_diffusion, in_channels=9),
        inputs.inpainting,
    ),
    "sd15-controlnet": Known(
        "SD 1.5, with a ControlNet", "StableDiffusionControlNetPipeline",
        partial(_stable_diffusion, control=True), inputs.controlnet,
    ),
    "sdxl": Known("SDXL, text to image", _SDXL, _sdxl, inputs.sdxl),
    "ssd1b": Known("SDXL with the layout of SSD-1B", _SDXL, partial(_sdxl, ssd1b=True), inputs.sdxl),
    "if-1": Known(
        "the layout of DeepFloyd IF, stage 1", "IFPipeline", partial(_deepfloyd_if, stage=1), inputs.if_first,
    ),
    "if-2": Known(
        "the layout of DeepFloyd IF, stage 2", "IFSuperResolutionPipeline", partial(_deepfloyd_if, stage=2),
        inputs.if_enlarge,
    ),
    "if-3": Known(
        "the layout of the upscaler used as DeepFloyd IF's stage 3", "StableDiffusionUpscalePipeline", _upscaler,
        inputs.upscale,
    ),
    "flux": Known("FLUX.1-dev, text to image", "FluxPipeline", _flux, inputs.flux),
    "sd3": Known("SD3 Medium, text to image", "StableDiffusion3Pipeline", _sd3, inputs.sd3),
    "z-image": Known("Z-Image, text to image", "ZImagePipeline", _z_image, inputs.z_image),
}  # fmt: skip


def random_pipeline(name: str, width: int = REAL_WIDTH, device: str = "cpu") -> NamedPipeline:
    """Return one of ``KNOWN`` with random weights in float32; ``width``, a multiple of 16, as in :mod:`.networks`."""
    import diffusers

    known = KNOWN[name]
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(0)
        parts = known.parts(width)
        parameters = inspect.signature(getattr(diffusers, known.pipeline_class)).parameters.values()
        needed = [one.name for one in parameters if one.default is one.empty]
        pipe = made(known.pipeline_class, **{**dict.fromkeys(needed), **parts})
    for part in pipe.components.values():
        if isinstance(part, torch.nn.Module):
            part.eval()
    pipe.set_progress_bar_config(disable=True)
    narrowed = "" if width == REAL_WIDTH else f", narrowed to {width} of {REAL_WIDTH} channels, fewer layers"
    return NamedPipeline(name, pipe, f"{known.about}, random weights{narrowed}", known.arguments)
