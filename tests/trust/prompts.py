"""Prompts that write files: what faults are tried on."""

from __future__ import annotations

from typing import Any

from executing import node

Prompt = dict[str, dict[str, Any]]


PASSES = {"positive": ["model", 1], "negative": ["model", 2], "latent_image": ["latent", 0]}
SAMPLING = {"seed": 7, "cfg": 4.0, "sampler_name": "euler", "scheduler": "simple", "denoise": 1.0}


def plain(kind: str, size: tuple[int, int, int] = (16, 16, 1), steps: int = 1) -> Prompt:
    """Return a plain picture's graph; ``size`` is the latent's height, width and batch."""
    sizes = dict(zip(("height", "width", "batch"), size, strict=True))
    return {
        "model": node("TrustModel", kind=kind, seed=0, copy=0),
        "latent": node("TrustLatent", kind=kind, **sizes, noise=False),
        "sampler": node("KSampler", model=["model", 0], steps=steps, **PASSES, **SAMPLING),
        "keep": node("TrustKeep", samples=["sampler", 0], name="kept", truth=""),
    }


def picture(again: int = 0) -> Prompt:
    """Return such a graph; another number draws it again."""
    nodes = plain("sd15", steps=2)
    nodes["fault"] = node("TrustFault", model=["model", 0], fault="none", at_call=0, again=again)
    nodes["sampler"]["inputs"]["model"] = ["fault", 0]
    return nodes


def quantized(again: int = 0, save: str = "") -> Prompt:
    """Return a graph with an int8 model, saved under ``save`` if that is given."""
    nodes = picture(again=again)
    settings = {"preset": "balanced", "mode": "int8", "include": "attn, ff", "exclude": ""}
    nodes["int8"] = node("PacelineQuantizeInt8", model=["model", 0], device="auto", **settings)
    nodes["fault"]["inputs"]["model"] = ["int8", 0]
    if save:
        nodes["save"] = node("PacelineSaveInt8Model", model=["int8", 0], filename_prefix=save)
    return nodes


def merging(**settings: Any) -> dict[str, Any]:
    """Return the inputs of an Apply ToMe that makes tokens fewer in self-attention."""
    return {
        "preset": "custom", "method": "merge", "ratio": 0.5, "max_downsample": "auto", "sx": 2, "sy": 2,
        "use_rand": True, "seed": 0, "merge_attn": True, "merge_crossattn": False, "merge_mlp": False,
        "start_percent": 0.0, "end_percent": 1.0, "residual": "off", **settings,
    }  # fmt: skip


def compared(again: int = 0) -> Prompt:
    """Return a graph with Compare Models, plain against merged tokens."""
    nodes = picture(again=again)
    nodes["tome"] = node("PacelineApplyToMe", model=["model", 0], **merging())
    sides = {"model_baseline": ["fault", 0], "model_optimized": ["tome", 0]}
    rounds = {"steps": 1, "runs": 1}
    nodes["compare"] = node("PacelineCompareModels", **sides, **rounds, **PASSES, **SAMPLING)
    return nodes


def swept(study: str, steps: int = 1, again: int = 0) -> Prompt:
    """Return a graph with a sweep of six cells; another number runs the same study again."""
    nodes = picture()
    grid = {"grid": "Apply ToMe.ratio = 0.1, 0.2, 0.3, 0.4, 0.5, 0.6", "study": study}
    rounds = {"steps": steps, "runs": 1, "largest_difference": 10.0 / (1 + again)}
    nodes["sweep"] = node("PacelineBenchmarkSweep", model=["fault", 0], **grid, **rounds, **PASSES, **SAMPLING)
    return nodes
