"""What a technique is in every host, the order of techniques, and the one way to attach them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

from .activity import Activity, Summary
from .shared import Shared

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


class Policy(Shared, ABC):
    """What one optimization decides, counts and says, without a host; a technique of a host holds one.

    ``kind`` is one of ``KINDS``: a second technique of a kind replaces the first. ``notes`` are said after the settings
    and what they reach.
    """

    kind: ClassVar[str]
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


class Technique(Shared):
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


class Target(Protocol[T]):
    """Something that carries techniques: a MODEL, a VAE, a CONTROL_NET, a component of a diffusers pipeline."""

    @property
    def techniques(self) -> tuple[T, ...]:
        """What is attached, in canonical order."""

    def with_techniques(self, techniques: tuple[T, ...]) -> object:
        """Return the object with exactly these techniques: a copy where the host copies, else changed in place.

        If a technique cannot be attached, its error is raised and the object is what it was.
        """


def find(techniques: Iterable[T], kind: str) -> T | None:
    """Return the technique of ``kind``, or None."""
    return next((technique for technique in techniques if technique.kind == kind), None)


def in_order(techniques: Iterable[T], kinds: Sequence[str] = KINDS) -> tuple[T, ...]:
    """Return ``techniques`` in the order of ``kinds``, other kinds first; of two of one kind, only the later one."""
    places = {kind: place for place, kind in enumerate(kinds)}
    latest = {technique.kind: technique for technique in techniques}
    return tuple(sorted(latest.values(), key=lambda technique: places.get(technique.kind, -1)))


def attach(target: Target[T], *techniques: T) -> object:
    """Return the object of ``target`` with ``techniques`` added; each replaces one of the same kind."""
    return target.with_techniques(in_order([*target.techniques, *techniques]))


def detach_all(target: Target[T]) -> tuple[object, tuple[T, ...]]:
    """Return the object of ``target`` without our techniques, and the techniques that it had."""
    techniques = target.techniques  # before: some are changed in place
    return target.with_techniques(()), techniques
