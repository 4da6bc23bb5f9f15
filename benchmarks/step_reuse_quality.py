"""How far pictures are from those of the plain model, for step_reuse and what builds on it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from step_reuse import Bench, Drawn

Pairs = dict[str, list[float]]
"""Values of each pair of prompt and seed, in their order."""


def rms(a: Tensor, b: Tensor) -> float:
    """Return the root mean square of a difference."""
    return float((a.double() - b.double()).square().mean().sqrt())


def quality(bench: Bench, latents: Iterable[Tensor]) -> tuple[dict[str, float], Pairs]:
    """Return how far one latent for each pair is from the plain model's, and that of each pair.

    ``share`` is the distance as a share of a seed change, ``psnr`` that of the pictures in dB.
    """
    shares, psnrs = [], []
    for (prompt, seed), latent in zip(bench.pairs, latents, strict=True):
        reference = bench.plain(prompt, seed)
        shares.append(rms(latent, reference) / bench.seed_distance(prompt))
        error = rms(bench.pictures(latent), bench.pictures(reference))
        psnrs.append(-20 * math.log10(max(error, 1e-6)))
    numbers = {
        "psnr": statistics.fmean(psnrs),
        "psnr_worst": min(psnrs),
        "share": statistics.fmean(shares),
        "share_worst": max(shares),
    }
    return numbers, {"share": shares, "psnr": psnrs}


def of_node(bench: Bench, drawn: Sequence[Drawn], budget: float) -> tuple[dict[str, float], Pairs]:
    """Return what the runs of all pairs came to, and of each pair also ``estimate`` and ``evaluations``."""
    numbers, pairs = quality(bench, (one.latent for one in drawn))
    pairs |= {"estimate": [one.estimate for one in drawn], "evaluations": [one.evaluations for one in drawn]}
    numbers["evaluations"] = statistics.fmean(pairs["evaluations"])
    numbers["kept"] = statistics.fmean(share <= budget for share in pairs["share"])
    return numbers, pairs


def fewer_steps_beside(bench: Bench, drawn: Sequence[Drawn]) -> tuple[dict[str, float], Pairs]:
    """Return how far fewer steps are off, for each pair as many as its run had evaluations."""
    fit = [bench.fewer_steps(one.evaluations) for one in drawn]
    fewer, pairs = quality(bench, (bench.plain(*pair, steps) for pair, steps in zip(bench.pairs, fit, strict=True)))
    return fewer | {"evaluations": statistics.fmean(fit) * bench.solver.evaluations}, pairs


def in_short(pairs: Pairs) -> dict[str, str]:
    """Return the values of each pair in one line for a JSON file: four significant digits, spaces between."""
    return {name: " ".join(f"{value:.4g}" for value in values) for name, values in pairs.items()}
