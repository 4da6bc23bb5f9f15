"""Small diffusers pipelines of every class, with random weights, and what tests ask about them."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import torch
from diffusers_host.pipelines import NamedPipeline, random_pipeline

WIDTH = 32
STEPS = 2
PROMPTS = ("a lighthouse in a storm",)
_SPECIAL = ("<|startoftext|>", "<|endoftext|>")


def small(name: str) -> NamedPipeline:
    """A pipeline of one class that runs in a tenth of a second; always the same weights."""
    return random_pipeline(name, WIDTH)


def picture(pipeline: NamedPipeline, size: int = 0, steps: int = STEPS, **options: Any) -> torch.Tensor:
    """Float pictures ``[batch, channels, height, width]`` in [0, 1]."""
    options = {"prompts": list(PROMPTS), "output_type": "pt", **options}
    if pipeline.name in ("sd15-img2img", "if-3"):
        steps *= 2  # a single step, or the last one of DDIM, makes any error many times larger
    return pipeline.call(options.pop("prompts"), size or _size(pipeline.name), steps, **options)


def own_loop(pipe: Any, steps: int = STEPS) -> torch.Tensor:
    """What a denoising loop of one's own draws with a pipeline's UNet and a scheduler made for it."""
    from diffusers import EulerDiscreteScheduler

    scheduler = EulerDiscreteScheduler.from_config(pipe.scheduler.config)
    text = torch.randn(2, 77, pipe.unet.config.cross_attention_dim, generator=torch.Generator().manual_seed(5))
    text = text.to(pipe.unet.dtype)
    scheduler.set_timesteps(steps)
    latent = torch.randn(1, 4, 16, 16, generator=torch.Generator().manual_seed(0)).to(text) * scheduler.init_noise_sigma
    with torch.no_grad():
        for timestep in scheduler.timesteps:
            given = scheduler.scale_model_input(torch.cat([latent] * 2), timestep)
            without, guided = pipe.unet(given, timestep, encoder_hidden_states=text).sample.chunk(2)
            latent = scheduler.step(without + 7.5 * (guided - without), timestep, latent).prev_sample
    return latent


@cache
def baseline(name: str) -> torch.Tensor:
    """What the plain pipeline draws."""
    return picture(small(name))


def _size(name: str) -> int:
    return {"if-1": 32, "if-2": 64}.get(name, 128)


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """Relative L2 distance of two pictures, mean grey taken off the second."""
    reference = b.double()
    return float((a.double() - reference).norm() / (reference - reference.mean()).norm())


def state_of(pipe: Any) -> dict[str, Any]:
    """Everything that could be left behind on a pipeline: weights, layouts, attributes of every module, processors."""
    found: dict[str, Any] = {}
    for name, part in pipe.components.items():
        if not isinstance(part, torch.nn.Module):
            if hasattr(part, "set_timesteps"):
                found[name] = sorted(key for key in vars(part) if callable(getattr(part, key)))
            continue
        for path, tensor in (*part.named_parameters(), *part.named_buffers()):
            found[f"{name}.{path}"] = (tensor.detach().clone(), tensor.stride(), id(tensor))
        for path, module in part.named_modules():
            found[f"{name}.{path} attributes"] = sorted(vars(module))
            found[f"{name}.{path} class"] = type(module)
            if hasattr(module, "processor"):
                found[f"{name}.{path} processor"] = (id(module.processor), copy.copy(vars(module.processor)))
    return found


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Names of what is not the same any more."""
    names = sorted(before.keys() ^ after.keys())
    for name in before.keys() & after.keys():
        a, b = before[name], after[name]
        if isinstance(a, tuple) and isinstance(a[0], torch.Tensor):
            same = a[0].dtype == b[0].dtype and torch.equal(a[0], b[0]) and a[1:] == b[1:]
        else:
            same = a == b
        if not same:
            names.append(name)
    return names


def save_complete(folder: Path) -> None:
    """Write a pipeline with text encoder and tokenizer, all of them tiny and random, for ``from_pretrained``."""
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    letters = [chr(code) for code in range(33, 127)]
    words = [*_SPECIAL, *letters, *(letter + "</w>" for letter in letters)]
    (folder / "words").mkdir(parents=True)
    (folder / "words" / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (folder / "words" / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = CLIPTokenizer(
        str(folder / "words" / "vocab.json"), str(folder / "words" / "merges.txt"), model_max_length=77
    )
    pipe: Any = small("sd15").pipe
    config = CLIPTextConfig(
        vocab_size=len(words), hidden_size=pipe.unet.config.cross_attention_dim, intermediate_size=64,
        num_hidden_layers=1, num_attention_heads=2, bos_token_id=0, eos_token_id=1, pad_token_id=1,
    )  # fmt: skip
    pipe.register_modules(text_encoder=CLIPTextModel(config), tokenizer=tokenizer)
    pipe.unet.register_to_config(sample_size=16)  # 128 pixels instead of 512
    pipe.save_pretrained(folder)
