"""Does a workflow take clearly longer than it did? Since which run, in which stage, and what changed in between.

Like is compared with like: runs in which the same nodes did something, as ComfyUI keeps the results of others. Where
models were loaded from disk, as in the first run after a start, loading and compiling do not count: they depend on what
the system holds in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

BEFORE, MOST_BEFORE = 3, 5
"""So many runs must have been quicker, and so many of the latest are looked at."""

NOW = 2
"""So many must have been slower, one after the other up to the latest: one alone can be chance."""

LONGER, SECONDS = 1.3, 1.0
"""The quickest of these takes so many times as long as the slowest of those before, and so many seconds more."""

COLD = ("loading", "compiling")
"""Stages that say nothing where models were loaded from disk."""


@dataclass(frozen=True)
class KeptRun:
    """What an ordinary run took.

    Attributes:
        work: stands for the workflow, without seeds, texts and names of files, and for the nodes that did something.
        when: when it ended, ISO 8601 in UTC.
        seconds: of each stage.
        loaded: whether models were loaded from disk.
        facts: versions and devices.
        about: what was drawn: family of the model, solver, steps, size; and with which of our nodes.
        workflow: stands for the workflow alone.
        parts: seconds by kind of node and by node.
        again: why weights were loaded again; empty where they were not, or that is not known.
        texts: what stands for all that each text was encoded from.
        given_up: nodes that could not be tried after the run, by their titles: the seconds after which the compilation
            was given up, 0 where they have nothing to do there.
        plain_steps: seconds of a step in each half of a sampler's run without our nodes, by what was sampled.
    """

    work: str
    when: str
    seconds: dict[str, float]
    loaded: bool
    facts: dict[str, str]
    about: dict[str, str]
    workflow: str = ""
    parts: dict[str, dict[str, float]] = field(default_factory=dict)
    again: str = ""
    texts: dict[str, str] = field(default_factory=dict)
    given_up: dict[str, float] = field(default_factory=dict)
    plain_steps: dict[str, list[float]] = field(default_factory=dict)

    @property
    def counted(self) -> dict[str, float]:
        """The seconds that can be compared with other runs'."""
        return {stage: each for stage, each in self.seconds.items() if not (self.loaded and stage in COLD)}

    @property
    def total(self) -> float:
        return sum(self.counted.values())


@dataclass(frozen=True)
class Slower:
    """The change: ``since`` when, the ``stage`` that grew most, and medians of seconds before and after.

    ``changed``: the facts that are others, before and after.
    """

    since: str
    stage: str
    was: float
    now: float
    total_was: float
    total_now: float
    changed: Mapping[str, tuple[str, str]]


def slower(outcomes: Sequence[KeptRun], latest: KeptRun) -> Slower | None:
    """Return what became slower in the runs that are like ``latest``; None where nothing did, or it is not clear."""
    alike = [one for one in outcomes if (one.work, one.loaded) == (latest.work, latest.loaded)]
    found = sorted(_changes(alike), key=lambda pair: pair[0])
    if not found:
        return None
    split = found[-1][1]
    before, after = alike[max(0, split - MOST_BEFORE) : split], alike[split:]

    def middle(runs: Sequence[KeptRun], stage: str) -> float:
        return median(one.counted.get(stage, 0.0) for one in runs)

    stages = {stage for one in alike for stage in one.counted}
    stage = max(sorted(stages), key=lambda name: middle(after, name) - middle(before, name))
    then, now = before[-1].facts, after[0].facts
    changed = {name: (then.get(name, "?"), now.get(name, "?")) for name in [*dict.fromkeys([*then, *now])]}
    return Slower(
        after[0].when,
        stage,
        middle(before, stage),
        middle(after, stage),
        median(one.total for one in before),
        median(one.total for one in after),
        {name: pair for name, pair in changed.items() if pair[0] != pair[1]},
    )


def _changes(runs: Sequence[KeptRun]) -> Iterator[tuple[float, int]]:
    """Yield how many times as long runs take from a number on, for each number from which they clearly take longer."""
    for split in range(BEFORE, len(runs) - NOW + 1):
        slowest = max(one.total for one in runs[max(0, split - MOST_BEFORE) : split])
        quickest = min(one.total for one in runs[split:])
        if quickest >= LONGER * slowest and quickest - slowest >= SECONDS:
            yield quickest / max(slowest, 1e-3), split
