"""What a search tries: fewer steps, better solvers, steps and guidance left out, and all of these together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from ...optimizers.step_reuse.samplers import FEWEST_STEPS, SAMPLERS, sampler_of

_LADDER = (0.8, 0.63, 0.5, 0.4, 0.32, 0.25)
"""Step counts to try, as shares of the workflow's."""

_SWITCHED = 0.65
"""Another solver is tried with at most this share of the steps: with all of them it gains nothing."""

SOLVERS = tuple(name for name, sampler in SAMPLERS.items() if sampler.order == 2)
"""Of second order: with half of the steps as near to the true path as Euler with all."""

SCHEDULES = ("simple",)
"""Schedules that are tried with another solver, beside the workflow's own."""

REUSE, EASY = "Reuse Steps", "EasyCache"
_BUDGETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
"""Of Reuse Steps; those from a third of the limit to four times the limit are tried: most pictures keep far inside."""

_THRESHOLD = 0.1
"""Of EasyCache."""

UNGUIDED = 0.7
"""From this part of the schedule on guidance is left out."""

_COMPUTED = {0.01: 0.7, 0.02: 0.6, 0.05: 0.5, 0.1: 0.42, 0.2: 0.33, 0.3: 0.3}
"""Of the steps after the first, what Reuse Steps computed with a budget (icon model, Euler, 30 steps)."""

_FIRST = 6
"""Steps that Reuse Steps always computes."""

_FEWEST_FOR_REUSE = 12


@dataclass(frozen=True)
class Candidate:
    """How a workflow would sample: its own settings, or others.

    Attributes:
        cache: what leaves out steps and its setting; an empty name for nothing.
        unguided: from which part of the schedule on guidance is left out; 1 for nowhere.
        with_nodes: whether the nodes that make a step itself faster are there.
    """

    steps: int
    sampler: str
    scheduler: str
    cache: tuple[str, float] = ("", 0.0)
    unguided: float = 1.0
    with_nodes: bool = False

    @property
    def key(self) -> str:
        values = (self.sampler, self.scheduler, self.steps, *self.cache, self.unguided, self.with_nodes)
        return " ".join(map(str, values))


@dataclass(frozen=True)
class Space:
    """The candidates of one workflow.

    Attributes:
        plain: the workflow's own settings.
        limit: how far pictures may move, as a share of a seed change.
        may_change: which of ``steps``, ``sampler``, ``scheduler``, ``unguided`` and of the names of caches may change.
        faster: how many times as fast a step is with nodes that were found to be faster; 1 without any.
    """

    plain: Candidate
    limit: float
    may_change: frozenset[str]
    faster: float = 1.0

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """All but the plain one."""
        found: list[Candidate] = []
        budgets = [budget for budget in _BUDGETS if self.limit / 3 <= budget <= 4 * self.limit]
        for path in self._paths():
            found.append(path)
            if "unguided" in self.may_change:
                found.append(replace(path, unguided=UNGUIDED))
            if REUSE in self.may_change and path.steps >= _FEWEST_FOR_REUSE:
                found += [replace(path, cache=(REUSE, budget)) for budget in budgets]
        if EASY in self.may_change:
            found.append(replace(self.plain, cache=(EASY, _THRESHOLD)))
        if self.faster > 1:
            found += [replace(one, with_nodes=True) for one in found]
        return tuple(one for one in found if one != self.plain)

    def _paths(self) -> Iterator[Candidate]:
        plain = self.plain
        yield plain
        counts = dict.fromkeys(max(FEWEST_STEPS, round(plain.steps * share)) for share in _LADDER)
        fewer = [count for count in counts if count < plain.steps] if "steps" in self.may_change else []
        for steps in fewer:
            yield replace(plain, steps=steps)
        if "sampler" not in self.may_change or not sampler_of(plain.sampler).plain_path:
            return
        for sampler in SOLVERS:
            for scheduler in dict.fromkeys([plain.scheduler, *(SCHEDULES if "scheduler" in self.may_change else ())]):
                for steps in fewer:
                    other = replace(plain, sampler=sampler, scheduler=scheduler, steps=steps)
                    if sampler != plain.sampler and steps <= plain.steps * _SWITCHED:
                        yield other

    def changes(self, one: Candidate) -> list[str]:
        """Return what a candidate changes, each in a few words, e.g. ``dpmpp_2m 20 steps``, ``Reuse Steps 0.1``."""
        plain, (name, setting) = self.plain, one.cache
        path = [part for part in ("sampler", "scheduler") if getattr(one, part) != getattr(plain, part)]
        parts = [" ".join([*(getattr(one, part) for part in path), f"{one.steps} steps"])] if path else []
        parts += [f"{one.steps} steps"] if one.steps != plain.steps and not path else []
        parts += [f"{name} {setting:g}"] if name else []
        return [*parts, *([f"no guidance after {one.unguided:.0%}"] if one.unguided < 1 else [])]

    def gain(self, one: Candidate) -> float:
        """Return how many times less work is expected, before any was drawn."""
        name, setting = one.cache
        steps = float(one.steps)
        if name == REUSE:
            steps = _FIRST + _COMPUTED[setting] * max(0.0, steps - _FIRST)
        elif name == EASY:
            steps *= 0.7
        guided = 1.0 - (1.0 - one.unguided) / 2
        return self.plain.steps / (steps * guided) * (self.faster if one.with_nodes else 1.0)

    def errors(self, one: Candidate) -> Mapping[str, float]:
        """Return how far each change moves the picture as is expected before any was drawn, as shares of a seed change.

        Changes of one name are expected to be off by one common factor.
        """
        found: dict[str, float] = {}
        path = f"{one.sampler} {one.scheduler}"
        if (one.sampler, one.scheduler) == (self.plain.sampler, self.plain.scheduler):
            found[f"steps of {path}"] = 4.0 * (1 / one.steps - 1 / self.plain.steps)
        else:
            found[f"switch to {path}"] = 0.5 / self.plain.steps
            found[f"steps of {path}"] = 18.0 / one.steps**2
        name, setting = one.cache
        if name:
            found[name] = setting * (0.4 if name == REUSE else 0.8)
        if one.unguided < 1:
            found["unguided"] = 0.15
        if one.with_nodes:
            found["nodes"] = 0.03
        return {name: error for name, error in found.items() if error > 0}
