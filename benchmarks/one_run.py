"""How well does one ordinary run foretell what other settings do to the pictures after it?

    python benchmarks/one_run.py [--quick] [--json PATH] [--threads N]

Eight workflows with the icon model that no constant was chosen by. In each, one picture is drawn and observed; its
replay and its probe say what to expect. Then pictures of other prompts from other seeds are drawn with the same
settings. Nothing is timed: work is counted in evaluations of the network. A distance is the root mean square of the
difference of two latents, as a share of what another seed changes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import torch
from shared.distances import in_short
from shared.measuring import arguments
from shared.nodes import Apply, reused, tome
from shared.record import Row, collected, report
from shared.trained import ICONS, Bench, Solver, about_weights, rms
from torch import Tensor

# isort: split
from paceline.measure.expect import WORK, Expected, expect, propose
from paceline.measure.replay import Sampling, replay
from paceline.service.comfyui.observer import Observer
from paceline.service.comfyui.probe import probe

LIMITS = {"hardly visible": 0.05, "fastest": 0.15}
MERGING = ("quality",)
"""Presets of Apply ToMe that the probe tries: what it keeps of some steps is for the others."""

NEAR = 0.1
"""Within this part of what was measured, an expected number of evaluations is right."""

LATER = 4
"""Pictures that are drawn afterwards in each workflow."""

OTHER_SEEDS = 2
FEW = 10
"""Steps do for another seed's picture."""

NOTES = {
    "less_work": "how many times fewer evaluations, mean of the pictures drawn afterwards; *expected_less_work* before",
    "near": "share of those pictures whose evaluations are within a tenth of what was expected, *in_range* within the "
    "range that is shown",
    "low": "from there to *high* a picture is expected to move, *likely* in between; shares of a seed change",
    "moved": "how far the pictures drawn afterwards have moved, on average; *worst* is the farthest",
    "inside": "share of those pictures between *low* and *high*; *below_high* of those not beyond",
    "kept": "share of those pictures that stayed inside of the choice",
}


@dataclass
class JudgedRow(Row):
    """A row with what was chosen."""

    choice: str = ""


WORKFLOWS = (
    (Solver("euler", "normal", 30), 3.0), (Solver("euler", "karras", 20), 5.0), (Solver("dpmpp_2m", "karras", 20), 3.0),
    (Solver("uni_pc", "normal", 25), 2.0), (Solver("ddim", "ddim_uniform", 30), 1.0),
    (Solver("euler", "simple", 50), 7.0), (Solver("res_multistep", "simple", 20), 4.0),
    (Solver("dpmpp_2m", "karras", 30), 6.0),
)  # fmt: skip
"""With their guidance."""


class Subject:
    """One workflow: draws pictures by their numbers. 0 is the one that is observed, another number another prompt."""

    def __init__(self, solver: Solver, guidance: float, number: int) -> None:
        self._bench = Bench(replace(ICONS, guidance=guidance), solver)
        self.name = f"{ICONS.name}, {solver.name}, guidance {guidance:g}"
        self.model, self._first = self._bench.patcher, 3 * number

    def _draw(self, model: Any, number: int, seed: int, steps: int | None) -> Tensor:
        prompt = ICONS.prompts[(self._first + number) % len(ICONS.prompts)]
        return self._bench.sample(model, prompt, seed, steps or self._bench.solver.steps)

    def draw(self, apply: Apply, number: int, seed: int = 0, steps: int | None = None) -> tuple[Tensor, float]:
        """Return a picture's latent, and how many passes of the network it took; ``seed``: another one of it."""
        counted = Observer(keep=False)
        latent = self._draw(counted.on(apply(self.model)), number, 60_000 + 10 * number + seed, steps)
        return latent, float(counted.samplings[0].computed)

    def observed(self) -> Sampling:
        """Return what an ordinary run has shown."""
        observer = Observer()
        self._draw(observer.on(self.model), 0, 60_000, None)
        return observer.samplings[0]


def measure(subject: Subject) -> list[JudgedRow]:
    """Return the rows of one workflow: what was expected of each setting, and what became of the later pictures."""
    sampling = subject.observed()
    with torch.inference_mode():
        found = {one.name: one for one in probe(sampling, {preset: tome(preset=preset) for preset in MERGING})}
    settings = {name: propose(sampling, [], limit) or expect(sampling) for name, limit in LIMITS.items()}
    merging = {f"Apply ToMe {name}": [one] for name, one in found.items() if one.error}
    settings |= {name: expect(sampling, probed) for name, probed in merging.items()}
    pictures: dict[str, list[tuple[float, float]]] = {name: [] for name in settings}
    for picture in range(1, LATER + 1):
        plain, whole = subject.draw(lambda model: model, picture)
        others = [subject.draw(lambda model: model, picture, seed, FEW)[0] for seed in range(1, OTHER_SEEDS + 1)]
        apart = math.sqrt(statistics.fmean(rms(*pair) ** 2 for pair in combinations((plain, *others), 2)))
        for name, one in settings.items():
            latent, work = subject.draw(_applied(one), picture)
            pictures[name].append((whole / work, rms(latent, plain) / apart))
    return [_row(subject.name, sampling, name, one, pictures[name]) for name, one in settings.items()]


def _row(work_of: str, sampling: Sampling, name: str, one: Expected, drawn: list[tuple[float, float]]) -> JudgedRow:
    work, moved = zip(*drawn, strict=True)
    far, expected = one.distance, 1.0 if one.budget is None else 1 / replay(sampling, one.budget).work
    numbers = {"expected_less_work": expected, "less_work": statistics.fmean(work)}
    numbers["near"] = statistics.fmean(abs(each / expected - 1) <= NEAR for each in work)
    left = WORK.of(1 / expected, 1.0)
    numbers["in_range"] = statistics.fmean(left.low <= 1 / each <= left.high for each in work)
    numbers |= {"low": far.low, "likely": far.likely, "high": far.high}
    numbers |= {"moved": statistics.fmean(moved), "worst": max(moved)}
    numbers["inside"] = statistics.fmean(far.low <= each <= far.high for each in moved)
    numbers["below_high"] = statistics.fmean(each <= far.high for each in moved)
    if name in LIMITS:
        numbers["kept"] = statistics.fmean(each <= LIMITS[name] for each in moved)
    each = in_short({"less_work": list(work), "moved": list(moved)})
    chosen = [f"Apply ToMe {preset}" for preset in one.names]
    chosen += [] if one.budget is None else [f"Reuse Steps {one.budget:g}"]
    return JudgedRow(name, work_of, quality=numbers, choice=" + ".join(chosen) or "nothing", pairs=each)


def _applied(one: Expected) -> Apply:
    def apply(patcher: Any) -> Any:
        for preset in one.names:
            patcher = tome(preset=preset)(patcher)
        return patcher if one.budget is None else reused(one.budget)(patcher)

    return apply


def together(rows: list[JudgedRow]) -> Iterator[JudgedRow]:
    """Yield what the workflows have in common."""
    for name in dict.fromkeys(row.name for row in rows):
        found = [row.quality for row in rows if row.name == name]
        numbers = {key: statistics.median(one[key] for one in found) for key in ("expected_less_work", "less_work")}
        shares = ("near", "in_range", "inside", "below_high", *(("kept",) if name in LIMITS else ()))
        numbers |= {key: statistics.fmean(one[key] for one in found) for key in shares}
        numbers["worst"] = max(one["worst"] for one in found)
        yield JudgedRow(name, f"all {len(found)} workflows, trained", quality=numbers)


def main() -> None:
    """Judge all workflows and say what came of it."""
    options = arguments(__doc__.splitlines()[0])
    notes = NOTES | {"weights": about_weights(ICONS)}
    baseline = "the same workflow without nodes, from the same seed"
    rows: list[JudgedRow] = []
    for number, workflow in enumerate(WORKFLOWS[:1] if options.quick else WORKFLOWS):
        rows += collected(measure(Subject(*workflow, number)))
    report([*together(rows), *rows], baseline, options.json, notes)


if __name__ == "__main__":
    main()
