"""Small diffusers pipelines of every class, with random weights, and what tests ask about them."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import torch
from paceline.optimizers.hosts.diffusers.bench.pipelines import PIPELINES, Pipeline, random_pipeline

WIDTH = 32
STEPS = 2
PROMPTS = ("a lighthouse in a storm",)

UNETS = tuple(name for name in PIPELINES if name not in ("flux", "sd3"))
WITH_VAE = tuple(name for name in PIPELINES if name not in ("if-1", "if-2"))


def small(name: str) -> Pipeline:
    """A pipeline of one class that runs in a tenth of a second; always the same weights."""
    return random_pipeline(name, WIDTH)


def picture(pipeline: Pipeline, size: int = 0, steps: int = STEPS, **options: Any) -> torch.Tensor:
    """Float pictures ``[batch, channels, height, width]`` in [0, 1]."""
    options = {"prompts": list(PROMPTS), "output_type": "pt", **options}
    if pipeline.name in ("sd15-img2img", "if-3"):
        steps *= 2  # a single step, or the last one of DDIM, makes any error many times larger
    return pipeline.call(options.pop("prompts"), size or _size(pipeline.name), steps, **options)


@cache
def baseline(name: str) -> torch.Tensor:
    """What the plain pipeline draws."""
    return picture(small(name))


def _size(name: str) -> int:
    return 64 if name in ("if-1", "if-2") else 128


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
