"""The pipelines that can be benchmarked, and what each needs to be called: sizes, images, text.

Without text encoders a prompt becomes random embeddings that depend on its words alone, so the same prompt always
asks for the same picture.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch

from ....errors import InvalidSetting, require_choice, require_integer
from . import architectures
from .architectures import REAL_WIDTH, scaled

TEXT_TOKENS = 77


@dataclass(frozen=True)
class Pipeline:
    """A pipeline with what is needed to call it.

    Attributes:
        name: as on the command line.
        pipe: the diffusers pipeline.
        random_weights: whether it has no trained weights.
        about: what it is, for people.
        arguments: from prompts, size and generator to the arguments of a call; see ``Pipeline.call``.
    """

    name: str
    pipe: Any
    random_weights: bool
    about: str
    arguments: Callable[[Any, list[str], int, torch.Generator], dict[str, Any]] = field(repr=False)

    def call(self, prompts: list[str], size: int, steps: int, seed: int = 0, **options: Any) -> Any:
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
        arguments = {"generator": generator, "num_inference_steps": steps, **arguments, **options}
        with torch.inference_mode():
            return self.pipe(**arguments).images


def random_embeddings(prompts: list[str], tokens: int, channels: int, like: Any) -> torch.Tensor:
    """Return embeddings ``[prompts, tokens, channels]`` that depend on the words alone, for a model ``like``."""
    rows = []
    for prompt in prompts:
        seed = int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:4], "little")
        rows.append(torch.randn(tokens, channels, generator=torch.Generator().manual_seed(seed)))
    parameter = next(like.parameters())
    return torch.stack(rows).to(parameter.device, parameter.dtype)


def test_image(size: int, batch: int) -> torch.Tensor:
    """Return pictures ``[batch, 3, size, size]`` of smooth stripes, for pipelines that start from one."""
    ramp = torch.linspace(0, 6.28, size)
    picture = torch.stack([ramp.sin()[None] * ramp.cos()[:, None], ramp.cos()[None].expand(size, -1), ramp.sin()[:, None]
                           .expand(-1, size)])  # fmt: skip
    return (picture * 0.5 + 0.5)[None].expand(batch, -1, -1, -1).clone()


def _text(pipe: Any, prompts: list[str], dim: int, tokens: int = TEXT_TOKENS, **more: int) -> dict[str, Any]:
    """Return the prompt as words where the pipeline can read, else as random embeddings, each with its negative."""
    if getattr(pipe, "tokenizer", None) is not None:
        return {"prompt": prompts}
    model = getattr(pipe, "unet", None) or pipe.transformer
    negative = [""] * len(prompts)
    found: dict[str, Any] = {
        "prompt_embeds": random_embeddings(prompts, tokens, dim, model),
        "negative_prompt_embeds": random_embeddings(negative, tokens, dim, model),
    }
    if "pooled" in more:
        found["pooled_prompt_embeds"] = random_embeddings(prompts, 1, more["pooled"], model)[:, 0]
        found["negative_pooled_prompt_embeds"] = random_embeddings(negative, 1, more["pooled"], model)[:, 0]
    return found


def _sd(pipe: Any, prompts: list[str], size: int, _: torch.Generator) -> dict[str, Any]:
    return {**_text(pipe, prompts, pipe.unet.config.cross_attention_dim), "height": size, "width": size}


def _img2img(pipe: Any, prompts: list[str], size: int, _: torch.Generator) -> dict[str, Any]:
    text = _text(pipe, prompts, pipe.unet.config.cross_attention_dim)
    return {**text, "image": test_image(size, len(prompts)), "strength": 0.8}


def _inpaint(pipe: Any, prompts: list[str], size: int, generator: torch.Generator) -> dict[str, Any]:
    mask = torch.zeros(len(prompts), 1, size, size)
    mask[:, :, : size // 2] = 1
    sizes = {"height": size, "width": size, "mask_image": mask}
    return {**_img2img(pipe, prompts, size, generator), **sizes, "strength": 1.0}


def _controlnet(pipe: Any, prompts: list[str], size: int, generator: torch.Generator) -> dict[str, Any]:
    return {**_sd(pipe, prompts, size, generator), "image": test_image(size, len(prompts))}


def _sdxl(pipe: Any, prompts: list[str], size: int, _: torch.Generator) -> dict[str, Any]:
    config = pipe.unet.config
    pooled = config.projection_class_embeddings_input_dim - 6 * config.addition_time_embed_dim
    text = _text(pipe, prompts, config.cross_attention_dim, pooled=pooled)
    return {**text, "height": size, "width": size}


def _if1(pipe: Any, prompts: list[str], size: int, _: torch.Generator) -> dict[str, Any]:
    text = _text(pipe, prompts, pipe.unet.config.encoder_hid_dim)
    return {**text, "height": size, "width": size, "output_type": "pt"}


def _if2(pipe: Any, prompts: list[str], size: int, _: torch.Generator) -> dict[str, Any]:
    text = _text(pipe, prompts, pipe.unet.config.encoder_hid_dim)
    image = test_image(max(8, size // 4), len(prompts)) * 2 - 1
    return {**text, "image": image, "height": size, "width": size, "output_type": "pt"}


def _flux(pipe: Any, prompts: list[str], size: int, _: torch.Generator) -> dict[str, Any]:
    config = pipe.transformer.config
    text = _text(pipe, prompts, config.joint_attention_dim, tokens=512, pooled=config.pooled_projection_dim)
    text = {name: value for name, value in text.items() if not name.startswith("negative")}
    return {**text, "height": size, "width": size}


def _sd3(pipe: Any, prompts: list[str], size: int, _: torch.Generator) -> dict[str, Any]:
    config = pipe.transformer.config
    text = _text(pipe, prompts, config.joint_attention_dim, tokens=333, pooled=config.pooled_projection_dim)
    return {**text, "height": size, "width": size}


@dataclass(frozen=True)
class _Recipe:
    about: str
    make: Callable[[int], Any]
    arguments: Callable[[Any, list[str], int, torch.Generator], dict[str, Any]]
    pipeline_class: str


def _make_sd(name: str, in_channels: int = 4, control: bool = False) -> Callable[[int], Any]:
    def make(width: int) -> Any:
        import diffusers

        parts: dict[str, Any] = {
            "vae": architectures.autoencoder(width),
            "unet": architectures.sd15_unet(width, in_channels),
            "scheduler": diffusers.PNDMScheduler(
                beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", skip_prk_steps=True, steps_offset=1
            ),
            **dict.fromkeys(("text_encoder", "tokenizer", "safety_checker", "feature_extractor")),
        }
        if control:
            parts["controlnet"] = architectures.sd15_controlnet(width)
        return getattr(diffusers, name)(**parts, requires_safety_checker=False)

    return make


def _make_sdxl(ssd1b: bool) -> Callable[[int], Any]:
    def make(width: int) -> Any:
        import diffusers

        return diffusers.StableDiffusionXLPipeline(
            vae=architectures.autoencoder(width, scaling_factor=0.13025),
            unet=architectures.sdxl_unet(width, ssd1b),
            scheduler=diffusers.EulerDiscreteScheduler(
                beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", steps_offset=1
            ),
            **dict.fromkeys(("text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2")),
            add_watermarker=False,
        )

    return make


def _make_if(stage: int) -> Callable[[int], Any]:
    def make(width: int) -> Any:
        import diffusers

        schedule: dict[str, Any] = {
            "beta_schedule": "squaredcos_cap_v2", "variance_type": "learned_range", "thresholding": True,
            "dynamic_thresholding_ratio": 0.95, "sample_max_value": 1.5,
        }  # fmt: skip
        if stage == 3:
            # DeepFloyd never published its own third stage; diffusers' example uses Stability's upscaler in its place.
            return diffusers.StableDiffusionUpscalePipeline(
                vae=architectures.autoencoder(width),
                unet=_upscaler_unet(width),
                low_res_scheduler=diffusers.DDPMScheduler(),
                scheduler=diffusers.DDIMScheduler(prediction_type="v_prediction"),
                **dict.fromkeys(("text_encoder", "tokenizer")),
            )
        parts: dict[str, Any] = {
            "unet": architectures.if_unet(width, stage),
            "scheduler": diffusers.DDPMScheduler(**schedule),
            **dict.fromkeys(("text_encoder", "tokenizer", "safety_checker", "feature_extractor", "watermarker")),
        }
        if stage == 1:
            return diffusers.IFPipeline(**parts, requires_safety_checker=False)
        return diffusers.IFSuperResolutionPipeline(
            **parts, image_noising_scheduler=diffusers.DDPMScheduler(**schedule), requires_safety_checker=False
        )

    return make


def _upscaler_unet(width: int) -> Any:
    from diffusers import UNet2DConditionModel

    from .architectures import _levels

    return UNet2DConditionModel(
        in_channels=7,
        block_out_channels=_levels(width, (1, 2, 2, 4)),
        layers_per_block=2 if width == REAL_WIDTH else 1,
        down_block_types=("DownBlock2D",) + ("CrossAttnDownBlock2D",) * 3,
        up_block_types=("CrossAttnUpBlock2D",) * 3 + ("UpBlock2D",),
        only_cross_attention=(True, True, True, False),
        cross_attention_dim=scaled(1024, width),
        num_class_embeds=1000,
        use_linear_projection=True,
    )


def _upscale(pipe: Any, prompts: list[str], size: int, _: torch.Generator) -> dict[str, Any]:
    image = test_image(max(8, size // 4), len(prompts))
    return {**_text(pipe, prompts, pipe.unet.config.cross_attention_dim), "image": image}


def _make_flux(width: int) -> Any:
    import diffusers

    return diffusers.FluxPipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        vae=architectures.autoencoder(width, 16),
        transformer=architectures.flux_transformer(width),
        **dict.fromkeys(("text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2")),
    )


def _make_sd3(width: int) -> Any:
    import diffusers

    texts = ("text_encoder", "text_encoder_2", "text_encoder_3", "tokenizer", "tokenizer_2", "tokenizer_3")
    return diffusers.StableDiffusion3Pipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=architectures.autoencoder(width, 16),
        transformer=architectures.sd3_transformer(width),
        **dict.fromkeys(texts),
    )


_RECIPES: Mapping[str, _Recipe] = MappingProxyType(
    {
        "sd15": _Recipe("SD 1.5, text to image", _make_sd("StableDiffusionPipeline"), _sd, "StableDiffusionPipeline"),
        "sd15-img2img": _Recipe(
            "SD 1.5, image to image", _make_sd("StableDiffusionImg2ImgPipeline"), _img2img,
            "StableDiffusionImg2ImgPipeline",
        ),
        "sd15-inpaint": _Recipe(
            "SD 1.5, inpainting", _make_sd("StableDiffusionInpaintPipeline", 9), _inpaint,
            "StableDiffusionInpaintPipeline",
        ),
        "sd15-controlnet": _Recipe(
            "SD 1.5 with a ControlNet", _make_sd("StableDiffusionControlNetPipeline", control=True), _controlnet,
            "StableDiffusionControlNetPipeline",
        ),
        "sdxl": _Recipe("SDXL, text to image", _make_sdxl(False), _sdxl, "StableDiffusionXLPipeline"),
        "ssd1b": _Recipe("SDXL with the layout of SSD-1B", _make_sdxl(True), _sdxl, "StableDiffusionXLPipeline"),
        "if-1": _Recipe("the layout of DeepFloyd IF, stage 1", _make_if(1), _if1, "IFPipeline"),
        "if-2": _Recipe("the layout of DeepFloyd IF, stage 2", _make_if(2), _if2, "IFSuperResolutionPipeline"),
        "if-3": _Recipe(
            "the layout of the upscaler used as DeepFloyd IF's stage 3", _make_if(3), _upscale,
            "StableDiffusionUpscalePipeline",
        ),
        "flux": _Recipe("FLUX.1-dev, text to image", _make_flux, _flux, "FluxPipeline"),
        "sd3": _Recipe("SD3 Medium, text to image", _make_sd3, _sd3, "StableDiffusion3Pipeline"),
    }
)  # fmt: skip

PIPELINES = tuple(_RECIPES)


def random_pipeline(name: str, width: int = REAL_WIDTH, seed: int = 0) -> Pipeline:
    """Return a pipeline of a named architecture with random weights.

    Args:
        name: one of ``PIPELINES``.
        width: channels of the first level, a multiple of 8; 320 is the real size.
        seed: of the weights.

    Raises:
        InvalidSetting: for an unknown name, or a width out of range.
    """
    require_choice("pipeline", name, PIPELINES)
    require_integer("width", width, 16, REAL_WIDTH)
    if width % 16:
        raise InvalidSetting(f"width is {width}.", "It must be a multiple of 16.")
    recipe = _RECIPES[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        pipe = recipe.make(width)
    for part in pipe.components.values():
        if isinstance(part, torch.nn.Module):
            part.eval()
    pipe.set_progress_bar_config(disable=True)
    real = "" if width == REAL_WIDTH else f", narrowed to {width} of {REAL_WIDTH} channels, fewer layers"
    return Pipeline(name, pipe, True, f"{recipe.about}, random weights{real}", recipe.arguments)


def trained_pipeline(name: str, source: str, **options: Any) -> Pipeline:
    """Return a pipeline from a folder or a Hugging Face id.

    Args:
        name: one of ``PIPELINES``: how it is called.
        source: what ``from_pretrained`` takes.
        options: further arguments of ``from_pretrained``.

    Raises:
        InvalidSetting: for an unknown name, or if nothing can be loaded from ``source``.
    """
    import diffusers

    require_choice("pipeline", name, PIPELINES)
    recipe = _RECIPES[name]
    try:
        pipe = getattr(diffusers, recipe.pipeline_class).from_pretrained(source, **options)
    except (OSError, ValueError) as error:
        raise InvalidSetting(
            f"No {recipe.pipeline_class} can be loaded from {source}: {error}",
            "Give a folder that save_pretrained wrote or a Hugging Face id; or leave it out for random weights.",
        ) from error
    pipe.set_progress_bar_config(disable=True)
    return Pipeline(name, pipe, False, f"{recipe.about}, weights of {source}", recipe.arguments)
