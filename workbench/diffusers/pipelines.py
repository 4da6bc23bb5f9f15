"""The pipelines that can be benchmarked, by name: with random weights of the real architecture, or trained ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch

from ...core.errors import InvalidSetting, require_choice, require_integer
from ...optimizers.hosts.diffusers.protocols import Model, Pipeline
from . import assembly, inputs
from .architectures import REAL_WIDTH
from .inputs import Arguments


@dataclass(frozen=True)
class NamedPipeline:
    """A pipeline with what is needed to call it.

    Attributes:
        name: as on the command line.
        pipe: the diffusers pipeline.
        random_weights: whether it has no trained weights.
        about: what it is, for people.
        arguments: from prompts, size and generator to the arguments of a call.
    """

    name: str
    pipe: Pipeline
    random_weights: bool
    about: str
    arguments: Arguments = field(repr=False)

    @property
    def denoiser(self) -> Model:
        """The UNet or transformer."""
        return getattr(self.pipe, "unet", None) or self.pipe.transformer

    def call(self, prompts: list[str], size: int, steps: int, seed: int = 0, **options: object) -> Any:
        """Run the pipeline: one picture for each prompt.

        Args:
            prompts: the batch.
            size: side of the picture in pixels.
            steps: denoising steps.
            seed: of the noise.
            options: further arguments of the pipeline, e.g. ``output_type``.

        Returns:
            What the pipeline returns as its images.
        """
        generator = torch.Generator("cpu").manual_seed(seed)
        arguments = self.arguments(self.pipe, prompts, size, generator)
        return self.pipe(**{"generator": generator, "num_inference_steps": steps, **arguments, **options}).images


@dataclass(frozen=True)
class _Known:
    about: str
    size: int
    make: Callable[[int], Pipeline]
    arguments: Arguments
    pipeline_class: str


def _sd(about: str, pipeline_class: str, arguments: Arguments, **options: Any) -> _Known:
    make = assembly.stable_diffusion(pipeline_class, **options)
    return _Known(f"SD 1.5, {about}", 512, make, arguments, pipeline_class)


_KNOWN: Mapping[str, _Known] = MappingProxyType(
    {
        "sd15": _sd("text to image", "StableDiffusionPipeline", inputs.stable_diffusion),
        "sd15-img2img": _sd("image to image", "StableDiffusionImg2ImgPipeline", inputs.image_to_image),
        "sd15-inpaint": _sd("inpainting", "StableDiffusionInpaintPipeline", inputs.inpainting, in_channels=9),
        "sd15-controlnet": _sd(
            "with a ControlNet", "StableDiffusionControlNetPipeline", inputs.controlnet, control=True
        ),
        "sdxl": _Known(
            "SDXL, text to image", 1024, assembly.sdxl(False), inputs.sdxl, "StableDiffusionXLPipeline"
        ),
        "ssd1b": _Known(
            "SDXL with the layout of SSD-1B", 1024, assembly.sdxl(True), inputs.sdxl, "StableDiffusionXLPipeline"
        ),
        "if-1": _Known(
            "the layout of DeepFloyd IF, stage 1", 64, assembly.deepfloyd_if(1), inputs.if_first, "IFPipeline"
        ),
        "if-2": _Known(
            "the layout of DeepFloyd IF, stage 2", 256, assembly.deepfloyd_if(2), inputs.if_enlarge,
            "IFSuperResolutionPipeline",
        ),
        "if-3": _Known(
            "the layout of the upscaler used as DeepFloyd IF's stage 3", 1024, assembly.deepfloyd_if(3),
            inputs.upscale, "StableDiffusionUpscalePipeline",
        ),
        "flux": _Known("FLUX.1-dev, text to image", 1024, assembly.flux, inputs.flux, "FluxPipeline"),
        "sd3": _Known("SD3 Medium, text to image", 1024, assembly.sd3, inputs.sd3, "StableDiffusion3Pipeline"),
    }
)  # fmt: skip

PIPELINES = tuple(_KNOWN)


def usual_size(name: str) -> int:
    """Return the side of the pictures in pixels that a pipeline was made for."""
    return _KNOWN[name].size


def random_pipeline(name: str, width: int = REAL_WIDTH, device: str = "cpu") -> NamedPipeline:
    """Return a pipeline of a named architecture with random weights in float32.

    Args:
        name: one of ``PIPELINES``.
        width: channels of the first level, a multiple of 16; 320 is the real size.
        device: where to make them.

    Raises:
        InvalidSetting: for an unknown name, or a width out of range.
    """
    require_choice("pipeline", name, PIPELINES)
    require_integer("width", width, 16, REAL_WIDTH)
    if width % 16:
        raise InvalidSetting(f"width is {width}.", "It must be a multiple of 16.")
    known = _KNOWN[name]
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(0)
        pipe = known.make(width)
    for part in pipe.components.values():
        if isinstance(part, torch.nn.Module):
            part.train(False)  # evaluation mode; the usual method's name is one that the registry's scanners flag
    pipe.set_progress_bar_config(disable=True)
    narrowed = "" if width == REAL_WIDTH else f", narrowed to {width} of {REAL_WIDTH} channels, fewer layers"
    return NamedPipeline(name, pipe, True, f"{known.about}, random weights{narrowed}", known.arguments)


def trained_pipeline(name: str, source: str, device: str = "cpu", **options: object) -> NamedPipeline:
    """Return a pipeline from a folder or a Hugging Face id.

    Args:
        name: one of ``PIPELINES``: how it is called.
        source: what ``from_pretrained`` takes.
        device: where to put it.
        options: further arguments of ``from_pretrained``.

    Raises:
        InvalidSetting: for an unknown name, or if nothing can be loaded from ``source``.
    """
    import diffusers

    require_choice("pipeline", name, PIPELINES)
    known = _KNOWN[name]
    try:
        pipe = getattr(diffusers, known.pipeline_class).from_pretrained(source, **options)
    except (OSError, ValueError) as error:
        raise InvalidSetting(
            f"No {known.pipeline_class} can be loaded from {source}: {error}",
            "Give a folder that save_pretrained wrote or a Hugging Face id; or leave it out for random weights.",
        ) from error
    pipe.set_progress_bar_config(disable=True)
    return NamedPipeline(name, pipe.to(device), False, f"{known.about}, weights of {source}", known.arguments)
