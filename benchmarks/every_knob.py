"""How much faster does one search of all settings make a workflow, beside each node alone and an exhaustive grid?

    python benchmarks/every_knob.py [--quick] [--json PATH] [--threads N]

The icon model in ComfyUI, where another seed is another picture, in eight workflows that no constant was chosen by.
Nothing is timed: work is counted in evaluations of the network, of which one without its negative pass counts half,
below all that leaves out evaluations. Search and grid judge a candidate alike, by pictures of one prompt from three
seeds; then what they chose draws eight pictures of other prompts from other seeds.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from typing import Any

import torch
from shared.measuring import arguments
from shared.record import ROOT, Row, table, write
from shared.trained import ICONS, Bench, Solver, about_weights, reused
from torch import Tensor

sys.path.insert(0, str(ROOT / "tools"))
from comfy_host import in_process  # noqa: E402
from paceline.workbench.comfyui.seed_share import distance, seed_distance  # noqa: E402
from paceline.workbench.search.engine import FIRST, PICTURES, DrawnPicture, Search  # noqa: E402
from paceline.workbench.search.space import EASY, REUSE, Candidate, Space  # noqa: E402

ALONE = ("fewer steps", REUSE, EASY, "guidance")
CHOICES = {"hardly visible": 0.05, "fastest": 0.15}
LATER = 8
_QUICK = Candidate(10, "dpmpp_2m", "karras")
NOTES = {
    "less_work": "how many times fewer evaluations, mean of the pictures drawn afterwards; 1 where nothing was chosen",
    "found": "the same of the pictures that it was chosen by",
    "worst": "farthest of the pictures drawn afterwards, as a share of what another seed changes",
    "inside": "share of the pictures drawn afterwards that stayed inside of the choice",
    "pictures": "drawn to choose by; *plain* is their work, in plain pictures",
}


@dataclass
class JudgedRow(Row):
    """A row with what was chosen."""

    choice: str = ""


@dataclass(frozen=True)
class Workflow:
    """How a person samples."""

    sampler: str
    scheduler: str
    steps: int
    guidance: float

    @property
    def name(self) -> str:
        return f"{self.sampler}, {self.scheduler}, {self.steps} steps, guidance {self.guidance:g}"


WORKFLOWS = (
    Workflow("euler", "normal", 30, 3.0),
    Workflow("euler", "karras", 20, 5.0),
    Workflow("dpmpp_2m", "karras", 20, 3.0),
    Workflow("uni_pc", "normal", 25, 2.0),
    Workflow("ddim", "ddim_uniform", 30, 1.0),
    Workflow("euler", "simple", 50, 7.0),
    Workflow("res_multistep", "simple", 20, 4.0),
    Workflow("dpmpp_2m", "karras", 30, 6.0),
)
DEVELOPED_WITH = (Workflow("euler", "normal", 25, 4.0), Workflow("dpmpp_2m", "normal", 30, 3.0))
"""What constants were chosen by, with seeds of its own; ``--quick`` runs the first."""


@dataclass
class Table:
    """What candidates of one workflow draw, each picture once.

    Pictures 0 to ``PICTURES - 1`` are one prompt's, to choose by; those from 100 on come afterwards.
    """

    workflow: Workflow
    number: int
    seen: dict[tuple[str, int], DrawnPicture] = field(default_factory=dict)

    def __post_init__(self) -> None:
        one = self.workflow
        self.bench = Bench(ICONS, Solver(one.sampler, one.scheduler, one.steps), 1)
        self.plain = Candidate(one.steps, one.sampler, one.scheduler)
        change = {"steps", "sampler", "scheduler", REUSE, EASY} | ({"unguided"} if one.guidance != 1 else set())
        self.may_change = frozenset(change)
        self._plain: dict[int, tuple[Tensor, float]] = {}
        self._seed_distances: dict[str, float] = {}

    def space(self, limit: float) -> Space:
        return Space(self.plain, limit, self.may_change)

    def pair(self, picture: int) -> tuple[str, int]:
        """Return the prompt and the seed of a picture."""
        prompts = ICONS.prompts
        if picture < 100:
            return prompts[self.number % len(prompts)], 30_000 + 100 * self.number + picture
        return prompts[(self.number + 1 + picture - 100) % len(prompts)], 50_000 + 100 * self.number + picture

    def drawn(self, one: Candidate, picture: int) -> DrawnPicture:
        """Return what a candidate makes of a picture."""
        place = (one.key, picture)
        if place not in self.seen:
            latent, work = self._sample(one, *self.pair(picture))
            reference, whole = self.reference(picture)
            share = distance(latent, reference)[0] / self.seed_distance(picture)
            self.seen[place] = DrawnPicture(one.key, picture, whole / work, share if math.isfinite(share) else math.inf)
        return self.seen[place]

    def reference(self, picture: int) -> tuple[Tensor, float]:
        """Return the plain picture, and its work."""
        if picture not in self._plain:
            self._plain[picture] = self._sample(self.plain, *self.pair(picture))
        return self._plain[picture]

    def seed_distance(self, picture: int) -> float:
        """Return how far the plain model's pictures of one prompt from different seeds are apart."""
        prompt, seed = self.pair(picture)
        if prompt not in self._seed_distances:
            if picture < 100:
                latents = [self.reference(each)[0] for each in range(PICTURES)]
            else:  # few steps do for another seed's picture
                others = [self._sample(_QUICK, prompt, seed + more)[0] for more in (50, 51)]
                latents = [self.reference(picture)[0], *others]
            self._seed_distances[prompt] = seed_distance(latents)
        return self._seed_distances[prompt]

    def _sample(self, one: Candidate, prompt: str, seed: int) -> tuple[Tensor, float]:
        patcher, (name, setting) = self.bench.patcher, one.cache
        if name == REUSE:
            patcher = reused(setting)(patcher)
        elif name == EASY:
            patcher = core_node("easycache", "EasyCacheNode").execute(patcher, setting, 0.15, 0.95, False).args[0]
        if one.unguided < 1:
            patcher = core_node("custom_sampler", "CFGOverride").execute(patcher, 1.0, one.unguided, 1.0).args[0]
        self.bench.counted.pictures = 0.0
        latent = in_process.sample(
            patcher, self.bench.encode(prompt), self.bench.encode(""), self.bench.witness.blank, seed, one.steps,
            self.workflow.guidance, one.sampler, one.scheduler,
        )  # fmt: skip
        return latent, self.bench.counted.pictures


def core_node(file: str, name: str) -> Any:
    """Return one of ComfyUI's own nodes."""
    module = __import__(f"comfy_extras.nodes_{file}", fromlist=[name])
    return getattr(module, name)


def search(table: Table, limit: float, pictures: int, plain: float = math.inf) -> tuple[Search, list[DrawnPicture]]:
    """Search as a trial does, with at most so many pictures, and so much work in plain pictures."""
    drawn: list[DrawnPicture] = []
    while True:
        now = Search(table.space(limit), drawn)
        found = now.next() if len(drawn) < pictures and now.work < plain else None
        if found is None:
            return now, drawn
        drawn.append(table.drawn(*found))


def grid(table: Table, limit: float) -> Search:
    """Judge all candidates; pictures of one that is out already are left out, which changes nothing."""
    space, drawn = table.space(limit), list[DrawnPicture]()
    for one in space.candidates:
        for picture in range(PICTURES):
            drawn.append(table.drawn(one, picture))
            if drawn[-1].share > limit:
                break
    return Search(space, drawn)


def best(found: Search) -> Candidate | None:
    """Return the fastest that holds; None where nothing does."""
    trades = found.trades()
    return trades[-1].candidate if trades else None


def afterwards(table: Table, one: Candidate | None, limit: float) -> dict[str, float]:
    """Return what a choice does to pictures of other prompts and seeds."""
    if one is None:
        return {"less_work": 1.0, "worst": 0.0, "inside": 1.0}
    later = [table.drawn(one, 100 + each) for each in range(LATER)]
    return {
        "less_work": statistics.fmean(each.gain for each in later),
        "worst": max(each.share for each in later),
        "inside": statistics.fmean(each.share <= limit for each in later),
    }


def single(found: Search, name: str) -> Candidate | None:
    """Return the fastest that holds and changes nothing but one thing."""
    plain, held = found.space.plain, {trade.candidate: trade.gain for trade in found.holding()}

    def changes(one: Candidate) -> set[str]:
        path = (one.sampler, one.scheduler) != (plain.sampler, plain.scheduler)
        steps = {"solver"} if path else {"fewer steps"} if one.steps != plain.steps else set()
        return steps | ({one.cache[0]} if one.cache[0] else set()) | ({"guidance"} if one.unguided < 1 else set())

    alone = [one for one in held if changes(one) == {name}]
    return max(alone, key=lambda one: held[one], default=None)


def measure(number: int, workflow: Workflow, limits: dict[str, float]) -> list[JudgedRow]:
    """Return the rows of one workflow: what each way of choosing finds, and what that does to later pictures."""
    torch.set_num_threads(1)
    drawings, rows = Table(workflow, number), list[JudgedRow]()
    for choice, limit in limits.items():
        whole = len(drawings.space(limit).candidates) * PICTURES
        tenth = whole // 10
        ways = {"one click": search(drawings, limit, tenth), "first answer": search(drawings, limit, tenth, FIRST)}
        every = grid(drawings, limit)
        chosen = {name: (best(found), found, len(drawn), found.work) for name, (found, drawn) in ways.items()}
        chosen["exhaustive grid"] = (best(every), every, whole, None)
        chosen |= {name: (single(every, name), every, None, None) for name in ALONE}
        for name, (one, found, pictures, plain) in chosen.items():
            changed = " + ".join(found.space.changes(one)) if one else "nothing"
            known = next((trade.gain for trade in found.holding() if trade.candidate == one), 1.0)
            numbers = afterwards(drawings, one, limit) | {"found": known}
            numbers |= {name: value for name, value in (("pictures", pictures), ("plain", plain)) if value is not None}
            rows.append(JudgedRow(name, f"{workflow.name}: {choice} ({limit:g})", quality=numbers, choice=changed))
            print(rows[-1].work, name, rows[-1].choice, numbers, flush=True)
    return rows


def medians(rows: list[JudgedRow]) -> Iterator[JudgedRow]:
    """Yield what the workflows have in common."""
    for choice, limit in CHOICES.items():
        of = [row for row in rows if row.work.endswith(f": {choice} ({limit:g})")]
        for name in dict.fromkeys(row.name for row in of):
            found = [row.quality for row in of if row.name == name]
            numbers = {key: statistics.median(one[key] for one in found) for key in ("less_work", "found")}
            numbers |= {"worst": max(one["worst"] for one in found)}
            numbers |= {"inside": statistics.fmean(one["inside"] for one in found)}
            yield JudgedRow(name, f"median of {len(found)} workflows: {choice} ({limit:g})", quality=numbers)


def main() -> None:
    """Search in all workflows and say what came of it."""
    options = arguments(__doc__.splitlines()[0], more=_more)
    workflows = list(enumerate(DEVELOPED_WITH[:1] if options.quick else WORKFLOWS))
    limits = {"fastest": 0.15} if options.quick else dict(reversed(CHOICES.items()))
    notes = NOTES | {"weights": f"{about_weights(ICONS)}; the trained transformer was not there"}
    baseline = "the workflow's own settings, from the same seed"
    rows: list[JudgedRow] = []
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        for done in as_completed([pool.submit(measure, *one, limits) for one in workflows]):
            rows += done.result()
            found = [*medians(rows), *rows]
            if options.json is not None:
                write(options.json, [asdict(row) for row in found], baseline, notes)
    print(table(list[Row](found)))


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=1, help="workflows at a time, each on one thread")


if __name__ == "__main__":
    main()
