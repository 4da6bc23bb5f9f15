"""How far pictures are from those of the plain model, and from the curves of what it draws with less work."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from .trained import Bench, BenchRun, rms

Pairs = dict[str, list[float]]
"""Values of each pair of prompt and seed, in their order."""

NOTES = {
    "psnr": "dB, of the pictures, mean over the pairs of prompt and seed, 120 where nothing changed; *psnr worst* of "
    "the worst pair",
    "psnr_tenth": "dB, of the pair that nine of ten are nearer than, as *psnr*",
    "share": "distance of the latents as a share of what another seed changes, or of a third of the picture's contrast "
    "if that is more",
    "evaluations": "of the network in one run, mean, counted below ComfyUI's wrappers",
    "gain": "dB nearer than the curve of fewer steps at as many evaluations, of the means; *gain worst* of the worst "
    "pairs; below 0 fewer steps are nearer",
    "fewer_nearer": "share of the pairs to which fewer steps are nearer at as many evaluations",
    "gain_late": "as *gain*, over the curve of late levels left out; *gain late worst*, *late nearer* likewise",
    "kept": "share of the pairs that stayed inside of the budget",
    "estimate": "share of the pairs whose estimate by the node is within a factor of 2 of the truth",
    "ratio": "median of truth / estimate",
    "beyond": "share of the pairs that moved by more than three budgets",
    "missed": "pairs beyond three budgets without an alarm, of all of these; *false* alarms of those inside of one",
}
"""What the numbers below are, by their names."""


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
        "psnr_tenth": sorted(psnrs)[len(psnrs) // 10],
        "psnr_worst": min(psnrs),
        "share": statistics.fmean(shares),
        "share_worst": max(shares),
    }
    return numbers, {"share": shares, "psnr": psnrs}


def of_runs(bench: Bench, drawn: Sequence[BenchRun], budget: float | None = None) -> tuple[dict[str, float], Pairs]:
    """Return what the runs of all pairs came to; with the budget of Reuse Steps also how good its estimate was."""
    numbers, pairs = quality(bench, (one.latent for one in drawn))
    pairs["evaluations"] = [one.evaluations for one in drawn]
    numbers["evaluations"] = statistics.fmean(pairs["evaluations"])
    if budget is None:
        return numbers, pairs
    pairs |= {"estimate": [one.estimate for one in drawn], "alarm": [float(one.alarm) for one in drawn]}
    return numbers | promised(pairs, budget), pairs


def promised(pairs: Pairs, budget: float) -> dict[str, float]:
    """Return whether Reuse Steps kept what it promised, and what it said of it, by the names in ``NOTES``."""
    shares, alarms = pairs["share"], pairs["alarm"]
    far = [1.0 - alarm for share, alarm in zip(shares, alarms, strict=True) if share > 3 * budget]
    inside = [alarm for share, alarm in zip(shares, alarms, strict=True) if share <= budget]
    numbers = {"kept": len(inside) / len(shares), "beyond": len(far) / len(shares)}
    numbers |= {name: statistics.fmean(of) for name, of in (("missed", far), ("false", inside)) if of}
    ratios = [share / guess for share, guess in zip(shares, pairs["estimate"], strict=True) if guess > 0]
    if ratios:
        numbers["estimate"] = statistics.fmean(0.5 <= ratio <= 2 for ratio in ratios)
        numbers["ratio"] = statistics.median(ratios)
    return numbers


@dataclass
class Curve:
    """What the plain model came to with less work of one kind, from the least to the most: means, and of each pair."""

    means: list[Mapping[str, float]] = field(default_factory=list)
    pairs: list[Pairs] = field(default_factory=list)

    def add(self, numbers: Mapping[str, float], pairs: Pairs) -> None:
        self.means.append(numbers)
        self.pairs.append(pairs)

    def gain(self, found: Mapping[str, float]) -> dict[str, float]:
        """Return how many dB nearer something is at as many evaluations, as ``gain`` and ``gain_worst``.

        The curve is a line from one row to the next. It ends where nothing was measured: no gain there.
        """
        return _gain(found, self.means)

    def nearer(self, pairs: Pairs) -> float | None:
        """Return the share of the pairs to which the pair's own curve is nearer; None where it reaches none."""
        lost = []
        for index, (evaluations, psnr) in enumerate(zip(pairs["evaluations"], pairs["psnr"], strict=True)):
            curve = [
                {"evaluations": row["evaluations"], "psnr": values["psnr"][index], "psnr_worst": values["psnr"][index]}
                for row, values in zip(self.means, self.pairs, strict=True)
            ]
            gain = _gain({"evaluations": evaluations, "psnr": psnr, "psnr_worst": psnr}, curve)
            lost += [gain["gain"] < 0] if gain else []
        return statistics.fmean(lost) if lost else None


def over(found: Mapping[str, float], pairs: Pairs, fewer: Curve, late: Curve) -> dict[str, float]:
    """Return what something is held against both curves of the plain model, by the names in ``NOTES``."""
    found_late = {name.replace("gain", "gain_late"): value for name, value in late.gain(found).items()}
    nearer = {"fewer_nearer": fewer.nearer(pairs), "late_nearer": late.nearer(pairs)}
    shares = {name: share for name, share in nearer.items() if share is not None}
    return fewer.gain(found) | found_late | shares


def _gain(found: Mapping[str, float], curve: Sequence[Mapping[str, float]]) -> dict[str, float]:
    below = [row for row in curve if row["evaluations"] <= found["evaluations"]]
    above = [row for row in curve if row["evaluations"] > found["evaluations"]]
    if not below or not above:
        return {}
    low, high = below[-1], above[0]
    part = (found["evaluations"] - low["evaluations"]) / (high["evaluations"] - low["evaluations"])
    line = {name: low[name] + part * (high[name] - low[name]) for name in ("psnr", "psnr_worst")}
    return {"gain": found["psnr"] - line["psnr"], "gain_worst": found["psnr_worst"] - line["psnr_worst"]}


def in_short(pairs: Pairs) -> dict[str, str]:
    """Return the values of each pair in one line for a JSON file: four significant digits, spaces between."""
    return {name: " ".join(f"{value:.4g}" for value in values) for name, values in pairs.items()}


def in_full(pairs: Mapping[str, str]) -> Pairs:
    """Return the values of each pair that ``in_short`` wrote."""
    return {name: [float(value) for value in line.split()] for name, line in pairs.items()}
