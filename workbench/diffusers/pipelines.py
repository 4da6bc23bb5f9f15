"""The pipelines that can be benchmarked, by name: with random weights of the real architecture, or trained ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from ...core.errors import InvalidSetting, require_choice, require_integer
from ...optimizers.hosts.diffusers.protocols import Model, Pipeline
from . import assembly, inputs
from .architectures import REAL_WIDTH
from .inputs import Arguments


@dataclass(frozen=True)
class NamedPipeline:
    """A diffusers pipeline by its name on the command line, with what it is, for people, and how it is called."""

    name: str
    pipe: Pipeline
    random_weights: bool
    about: str
    arguments: Arguments = field(repr=False)

    @property
    def denoiser(self) -> Model:
        return getattr(self.pipe, "unet", None) or self.pipe.transformer

    def call(self, prompts: list[str], size: int, steps: int, seed: int = 0, **options: object) -> Any:
        """Return the pipeline's images of ``size`` x ``size`` pixels, one for each prompt.

        ``options`` are further arguments of the pipeline, e.g. ``output_type``.
        """
        generator = torch.Generator("cpu").manual_seed(seed)
        arguments = self.arguments(self.pipe, prompts, size)
        return self.pipe(**{"generator": generator, "num_inference_steps": steps, **arguments, **options}).images


@dataclass(frozen=True)
class _Known:
    about: str
    size: int
    pipeline_class: str
    make: Callable[[str, int], Pipeline]
    arguments: Arguments


_SD15, _SDXL = "StableDiffusionPipeline", "StableDiffusionXLPipeline"
_KNOWN = {
    "sd15": _Known("SD 1.5, text to image", 512, _SD15, assembly.stable_diffusion, inputs.stable_diffusion),
    "sd15-img2img": _Known(
        "SD 1.5, image to image", 512, "StableDiffusionImg2ImgPipeline", assembly.stable_diffusion,
        inputs.image_to_image,
    ),
    "sd15-inpaint": _Known(
        "SD 1.5, inpainting", 512, "StableDiffusionInpaintPipeline",
        partial(assembly.stable_diffusion, in_channels=9), inputs.inpainting,
    ),
    "sd15-controlnet": _Known(
        "SD 1.5, with a ControlNet", 512, "StableDiffusionControlNetPipeline",
        partial(assembly.stable_diffusion, control=True), inputs.controlnet,
    ),
    "sdxl": _Known("SDXL, text to image", 1024, _SDXL, assembly.sdxl, inputs.sdxl),
    "ssd1b": _Known(
        "SDXL with the layout of SSD-1B", 1024, _SDXL, partial(assembly.sdxl, ssd1b=True), inputs.sdxl
    ),
    "if-1": _Known(
        "the layout of DeepFloyd IF, stage 1", 64, "IFPipeline", partial(assembly.deepfloyd_if, stage=1),
        inputs.if_first,
    ),
    "if-2": _Known(
        "the layout of DeepFloyd IF, stage 2", 256, "IFSuperResolutionPipeline",
        partial(assembly.deepfloyd_if, stage=2), inputs.if_enlarge,
    ),
    "if-3": _Known(
        "the layout of the upscaler used as DeepFloyd IF's stage 3", 1024, "StableDiffusionUpscalePipeline",
        assembly.upscaler, inputs.upscale,
    ),
    "flux": _Known("FLUX.1-dev, text to image", 1024, "FluxPipeline", assembly.flux, inputs.flux),
    "sd3": _Known("SD3 Medium, text to image", 1024, "StableDiffusion3Pipeline", assembly.sd3, inputs.sd3),
}  # fmt: skip

PIPELINES = tuple(_KNOWN)


def usual_size(name: str) -> int:
    """Return the side of the pictures in pixels that a pipeline was made for."""
    return _KNOWN[name].size


def random_pipeline(name: str, width: int = REAL_WIDTH, device: str = "cpu") -> NamedPipeline:
    """Return a pipeline of a named architecture with random weights in float32.

    ``width`` is that of :mod:`.architectures`, a multiple of 16. `InvalidSetting` for an unknown name or width.
    """
    require_choice("pipeline", name, PIPELINES)
    require_integer("width", width, 16, REAL_WIDTH)
    if width % 16:
        raise InvalidSetting(f"width is {width}.", "It must be a multiple of 16.")
    known = _KNOWN[name]
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(0)
        pipe = known.make(known.pipeline_class, width)
    for part in pipe.components.values():
        if isinstance(part, torch.nn.Module):
            part.train(False)  # evaluation mode; the usual method's name is one that the registry's scanners flag
    pipe.set_progress_bar_config(disable=True)
    narrowed = "" if width == REAL_WIDTH else f", narrowed to {width} of {REAL_WIDTH} channels, fewer layers"
    return NamedPipeline(name, pipe, True, f"{known.about}, random weights{narrowed}", known.arguments)


def trained_pipeline(name: str, source: str, device: str = "cpu") -> NamedPipeline:
    """Return a pipeline with weights that ``from_pretrained`` takes from a folder or Hugging Face id.

    `InvalidSetting` for an unknown name, or if nothing can be loaded from ``source``.
    """
    import diffusers

    require_choice("pipeline", name, PIPELINES)
    known = _KNOWN[name]
    try:
        pipe = getattr(diffusers, known.pipeline_class).from_pretrained(source)
    except (OSError, ValueError) as error:
        raise InvalidSetting(
            f"No {known.pipeline_class} can be loaded from {source}: {error}",
            "Give a folder that save_pretrained wrote or a Hugging Face id; or leave it out for random weights.",
        ) from error
    pipe.set_progress_bar_config(disable=True)
    return NamedPipeline(name, pipe.to(device), False, f"{known.about}, weights of {source}", known.arguments)
