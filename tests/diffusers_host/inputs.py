"""What each pipeline is called with: text, sizes, pictures to start from.

Without text encoders a prompt becomes random embeddings that depend on its words alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch

Arguments = Callable[[Any, list[str], int], dict[str, object]]
"""From a pipeline, prompts and the side of the picture to the arguments of a call."""


def stable_diffusion(pipe: Any, prompts: list[str], size: int) -> dict[str, object]:
    """Return the arguments for SD 1.x."""
    return {**_text(pipe, prompts, pipe.unet.config.cross_attention_dim), "height": size, "width": size}


def image_to_image(pipe: Any, prompts: list[str], size: int) -> dict[str, object]:
    """Return the arguments for SD 1.x, starting from a picture."""
    text = _text(pipe, prompts, pipe.unet.config.cross_attention_dim)
    return {**text, "image": _smooth_picture(size, len(prompts)), "strength": 0.8}


def inpainting(pipe: Any, prompts: list[str], size: int) -> dict[str, object]:
    """Return the arguments for SD 1.x with a mask over the upper half."""
    mask = torch.zeros(len(prompts), 1, size, size)
    mask[:, :, : size // 2] = 1
    sizes = {"height": size, "width": size, "mask_image": mask}
    return {**image_to_image(pipe, prompts, size), **sizes, "strength": 1.0}


def controlnet(pipe: Any, prompts: list[str], size: int) -> dict[str, object]:
    """Return the arguments for SD 1.x with a ControlNet."""
    return {**stable_diffusion(pipe, prompts, size), "image": _smooth_picture(size, len(prompts))}


def sdxl(pipe: Any, prompts: list[str], size: int) -> dict[str, object]:
    """Return the arguments for SDXL."""
    config = pipe.unet.config
    pooled = config.projection_class_embeddings_input_dim - 6 * config.addition_time_embed_dim
    return {**_text(pipe, prompts, config.cross_attention_dim, pooled=pooled), "height": size, "width": size}


def if_first(pipe: Any, prompts: list[str], size: int) -> dict[str, object]:
    """Return the arguments for the first stage of DeepFloyd IF."""
    return {**_text(pipe, prompts, pipe.unet.config.encoder_hid_dim), "height": size, "width": size}


def if_enlarge(pipe: Any, prompts: list[str], size: int) -> dict[str, object]:
    """Return the arguments for the second stage of DeepFloyd IF."""
    image = _smooth_picture(max(8, size // 4), len(prompts)) * 2 - 1
    return {**if_first(pipe, prompts, size), "image": image}


def upscale(pipe: Any, prompts: list[str], size: int) -> dict[str, object]:
    """Return the arguments for Stability's upscaler, DeepFloyd IF's third stage."""
    image = _smooth_picture(max(8, size // 4), len(prompts))
    return {**_text(pipe, prompts, pipe.unet.config.cross_attention_dim), "image": image}


def sd3(pipe: Any, prompts: list[str], size: int, tokens: int = 333) -> dict[str, object]:
    """Return the arguments for SD3."""
    config = pipe.transformer.config
    text = _text(pipe, prompts, config.joint_attention_dim, tokens, config.pooled_projection_dim)
    return {**text, "height": size, "width": size}


def flux(pipe: Any, prompts: list[str], size: int) -> dict[str, object]:
    """Return the arguments for FLUX.1."""
    found = sd3(pipe, prompts, size, tokens=512)
    return {name: value for name, value in found.items() if not name.startswith("negative")}


def z_image(pipe: Any, prompts: list[str], size: int) -> dict[str, object]:
    """Return the arguments for Z-Image, which takes each text by itself, as they differ in length."""
    text = _text(pipe, prompts, pipe.transformer.config.cap_feat_dim)
    lists = {name: [*value] if isinstance(value, torch.Tensor) else value for name, value in text.items()}
    return {**lists, "height": size, "width": size}


def _text(pipe: Any, prompts: list[str], dim: int, tokens: int = 77, pooled: int = 0) -> dict[str, object]:
    """Return the prompt as words where the pipeline can read, else as random embeddings, each with its negative."""
    if getattr(pipe, "tokenizer", None) is not None:
        return {"prompt": prompts}
    # Text encoders give their own dtype, not the denoiser's; a pipeline hands it on as far as the VAE.
    model = getattr(pipe, "vae", None) or pipe.unet
    found: dict[str, object] = {}
    for kind, words in (("", prompts), ("negative_", [""] * len(prompts))):
        found[f"{kind}prompt_embeds"] = _embeddings(words, tokens, dim, model)
        if pooled:
            found[f"{kind}pooled_prompt_embeds"] = _embeddings(words, 1, pooled, model)[:, 0]
    return found


def _embeddings(prompts: list[str], tokens: int, channels: int, like: Any) -> torch.Tensor:
    rows = []
    for prompt in prompts:
        seed = int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:4], "little")
        rows.append(torch.randn(tokens, channels, generator=torch.Generator().manual_seed(seed)))
    return torch.stack(rows).to(like.device, like.dtype)


def _smooth_picture(size: int, batch: int) -> torch.Tensor:
    ramp = torch.linspace(0, 6.28, size)
    planes = (ramp.sin()[None] * ramp.cos()[:, None], ramp.cos()[None].expand(size, -1), ramp.sin()[:, None])
    picture = torch.stack([plane.expand(size, size) for plane in planes])
    return (picture * 0.5 + 0.5)[None].expand(batch, -1, -1, -1).clone()
