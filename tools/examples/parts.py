"""What most of the examples have in common: loader, prompts, sampler, and how they end."""

from __future__ import annotations

from typing import Any

from .graph import Graph, Node, Output
from .model_files import models

PROMPT = "a red fox sitting in fresh snow, soft morning light, detailed fur, 85mm photograph"
NEGATIVE = "blurry, low quality, watermark"
GREEN, RED = ("#232", "#353"), ("#322", "#533")


def checkpoint(graph: Graph, name: str) -> Node:
    """Add the loader of a checkpoint."""
    return graph.add("CheckpointLoaderSimple", ckpt_name=name, models=models(name))


def prompts(graph: Graph, clip: Output) -> tuple[Node, Node]:
    """Add the positive and the negative prompt."""
    colours = {"title": "Positive prompt", "colour": GREEN}, {"title": "Negative prompt", "colour": RED}
    positive = graph.add("CLIPTextEncode", clip=clip, text=PROMPT, wide=400, **colours[0])
    negative = graph.add("CLIPTextEncode", clip=clip, text=NEGATIVE, wide=400, **colours[1])
    return positive, negative


def sample(graph: Graph, model: Output, positive: Output, negative: Output, latent: Output, **settings: Any) -> Node:
    """Add a KSampler with a fixed seed, so that two examples draw the same picture."""
    return graph.add(
        "KSampler",
        model=model,
        positive=positive,
        negative=negative,
        latent_image=latent,
        **({"seed": 42, "cfg": 7.0} | settings),
    )


def finish(graph: Graph, sampler: Node, model: Output, decoder: Output, name: str, **report: Any) -> None:
    """Decode, say what our nodes did, and save, in two columns."""
    graph.column()
    decoded = graph.add("VAEDecode", samples=sampler["LATENT"], vae=decoder)
    graph.add("PacelineOptimizationReport", model=model, after=decoded["IMAGE"], wide=460, taller=260, **report)
    graph.column()
    graph.add("SaveImage", images=decoded["IMAGE"], filename_prefix=f"paceline/{name}", wide=460, taller=460)
