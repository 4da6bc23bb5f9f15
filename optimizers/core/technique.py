"""What a technique is in every host, the order of techniques, and the sum of their runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from .activity import Activity, Summary, with_faults
from .not_copied import NotCopied
from .phrases import phrase

PRECISION = "precision"
QKV_FUSION = "qkv_fusion"
INT8 = "int8"
ATTENTION = "attention"
TOKEN_MERGING = "token_merging"  # nosec B105
COMPILATION = "compilation"
STEP_REUSE = "step_reuse"

KINDS = (PRECISION, QKV_FUSION, INT8, ATTENTION, TOKEN_MERGING, COMPILATION, STEP_REUSE)
"""Every kind of technique, innermost first. A target carries at most one technique of a kind.

It is the canonical order of all hosts, so that the order of nodes or arguments does not matter: first what changes
numbers, then what changes how the network computes with them, then what compiles the result, and last what leaves whole
calls of it out.
"""


@dataclass(frozen=True)
class WholeSteps:
    """Steps that are computed whole, and kept from for the others.

    ``share``: of them among all steps. ``mean_distance``: of the others from the last whole step before, in steps.
    """

    share: float
    mean_distance: float


class Policy(NotCopied, ABC):
    """What one optimization decides, counts and says, without a host; a technique of a host holds one.

    ``kind`` is one of ``KINDS``: a second technique of a kind replaces the first. ``neutral``: whether only a
    comparison tells if it makes anything faster where it is active. ``notes`` are said after the settings and what they
    reach.
    """

    kind: ClassVar[str]
    neutral: ClassVar[bool] = False
    title: str
    notes: Sequence[str] = ()

    @abstractmethod
    def clauses(self) -> tuple[str, ...]:
        """Return the settings and the number of places where they apply: the headline first, then further sentences."""

    def describe(self) -> str:
        return "; ".join(self.clauses())

    @abstractmethod
    def summarize(self, activity: Activity) -> Summary:
        """Return the counts of ``activity`` as data and in words."""

    def together(self, one: Summary, other: Summary, activity: Activity) -> Summary:
        """Return the same of several runs: ``activity`` is their sum, ``one`` and ``other`` are what they were."""
        return self.summarize(activity)

    @property
    def approximation(self) -> str:
        """What of it could go wrong in a way that only its numbers show, in a word or two; "" if nothing."""
        return ""

    def whole_steps(self, levels: Sequence[float]) -> WholeSteps | None:
        """Return which steps of a schedule, its noise levels, serve later ones; None where each stands by itself."""
        return None

    @property
    def uneven(self) -> bool:
        """Whether the first steps of a run take longer than others, so that the others alone tell too little."""
        return False

    def began(self) -> None:  # noqa: B027 - most policies keep nothing
        """Get ready for a sampling run, before anything else of it. A host calls it once for each run."""

    def ended(self) -> None:  # noqa: B027
        """Drop what was kept for the run. A host calls it once for each run that began, also after an error."""


class Technique(NotCopied):
    """A policy at work in a host: each host has a base class of its own for its techniques."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    @property
    def kind(self) -> str:
        return self.policy.kind

    @property
    def title(self) -> str:
        return self.policy.title

    def began(self) -> None:
        """Get ready for a sampling run; called once for each, first of all."""
        self.policy.began()

    def ended(self) -> None:
        """Drop what was kept for the run; called once for each that began, also after an error or a cancel."""
        self.policy.ended()


T = TypeVar("T", bound=Technique)


def find(techniques: Iterable[T], kind: str) -> T | None:
    """Return the technique of ``kind``, or None."""
    return next((technique for technique in techniques if technique.kind == kind), None)


def in_order(techniques: Iterable[T], kinds: Sequence[str] = KINDS) -> tuple[T, ...]:
    """Return ``techniques`` in the order of ``kinds``, other kinds first; of two of one kind, only the later one."""
    places = {kind: place for place, kind in enumerate(kinds)}
    latest = {technique.kind: technique for technique in techniques}
    return tuple(sorted(latest.values(), key=lambda technique: places.get(technique.kind, -1)))


MOST_LINES = 6
"""So many kinds of runs have a line of their own."""

_MOST_KEPT = 100
"""A program can sample for days: runs of further kinds are only counted."""


class RunHistory:
    """The runs before the latest one: their sum, and a line for each kind of them."""

    def __init__(self, policy: Policy) -> None:
        self.seconds = 0.0
        self.activity = Activity()
        self._policy = policy
        self._whole: Summary | None = None
        self._runs, self._active = 0, 0
        self._lines: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return self._runs

    def add(self, run: Summary, activity: Activity, seconds: float = 0.0) -> None:
        self.activity.add(activity)
        self.seconds += seconds
        self._whole = run if self._whole is None else self._policy.together(self._whole, run, self.activity)
        self._runs += 1
        self._active += _did_something(run)
        if run.line in self._lines or len(self._lines) < _MOST_KEPT:
            self._lines.setdefault(run.line, [self._runs, 0])[1] += 1

    def ending_with(self, latest: Summary, activity: Activity) -> Summary:
        """Return the summary of all runs, with the ``latest`` one and its ``activity``; itself where it is alone."""
        if self._whole is None:
            return latest
        total = Activity()
        total.add(self.activity)
        total.add(activity)
        found = with_faults(self._policy.together(self._whole, latest, total), total)
        headline, active, runs = found.headline, self._active + _did_something(latest), self._runs + 1
        if 0 < active < runs:
            headline = phrase("{headline}, in {active} of {runs} runs", headline=headline, active=active, runs=runs)
        return replace(found, headline=headline, details=(*self._lines_with(latest), *found.details))

    def _lines_with(self, latest: Summary) -> Iterator[str]:
        """Yield e.g. ``run 1: active in 3 of 7 blocks``; equal ones together: ``12 runs: ...``; then how many more."""
        lines = {line: [*known] for line, known in self._lines.items()}
        lines.setdefault(latest.line, [self._runs + 1, 0])[1] += 1
        shown = [*lines.items()][:MOST_LINES]
        for line, (first, count) in shown:
            yield f"{f'run {first}' if count == 1 else f'{count} runs'}: {line}"
        more = self._runs + 1 - sum(count for _, (_, count) in shown)
        if more:
            yield f"and {more} more run{'' if more == 1 else 's'}"


def _did_something(run: Summary) -> bool:
    return run.state in ("active", "partly")
