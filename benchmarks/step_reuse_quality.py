"""How far pictures are from those of the plain model, for step_reuse and what builds on it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from step_reuse import Bench, Drawn


def rms(a: Tensor, b: Tensor) -> float:
    """Return the root mean square of a difference."""
    return float((a.double() - b.double()).square().mean().sqrt())


def quality(bench: Bench, latents: Iterable[Tensor]) -> tuple[dict[str, float], list[float]]:
    """Return distances of one latent for each pair to the plain model's, and each as a share of a seed change."""
    shares, psnrs = [], []
    for (prompt, seed), latent in zip(bench.pairs, latents, strict=True):
        reference = bench.plain(prompt, seed)
        shares.append(rms(latent, reference) / bench.seed_distance(prompt))
        error = rms(bench.decode(latent, scale=1), bench.decode(reference, scale=1))
        psnrs.append(-20 * math.log10(max(error, 1e-6)))
    numbers = {
        "psnr": statistics.fmean(psnrs),
        "psnr_worst": min(psnrs),
        "share": statistics.fmean(shares),
        "share_worst": max(shares),
    }
    return numbers, shares


def of_node(bench: Bench, drawn: Sequence[Drawn], budget: float) -> tuple[dict[str, float], list[float]]:
    """Return what the runs of all pairs came to, and each distance as a share of a seed change."""
    numbers, shares = quality(bench, (one.latent for one in drawn))
    numbers["evaluations"] = statistics.fmean(one.evaluations for one in drawn)
    numbers["kept"] = statistics.fmean(share <= budget for share in shares)
    return numbers, shares


def fewer_steps_beside(bench: Bench, drawn: Sequence[Drawn]) -> tuple[dict[str, float], float]:
    """Return how far fewer steps are off, for each pair as many as its run had evaluations, and their mean number."""
    fit = [bench.fewer_steps(one.evaluations) for one in drawn]
    fewer, _ = quality(bench, (bench.plain(*pair, steps) for pair, steps in zip(bench.pairs, fit, strict=True)))
    return fewer, statistics.fmean(fit) * bench.solver.evaluations
