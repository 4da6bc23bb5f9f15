"""How far the final latent has moved by now, and whether one more skip keeps it inside of the budget.

An error of the denoised prediction moves the latent by its share in the solver's update (``Rule._weight``); once the
next step was computed, a skipped one is known much better. Errors of different steps point into different directions,
so their squares are added.

Distances are root mean squares over the parts (``parts.py``) of each item of the batch; the worst decides. They are
held against what another seed would change: the positive pass' first prediction, from noise alone, is the mean of all
pictures of the prompt, and two pictures are ``SEEDS`` times as far apart as one is from it. The constants were
measured: see benchmarks/step_reuse_constants.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..core.choices import unit
from ..models.samplers import Calibration

SEEDS = math.sqrt(2)
"""How far two pictures of a prompt are apart for each unit of one's distance from the mean of all."""

PRIOR = 0.15
"""Assumed distance from the mean while noise still hides it; latents are scaled to about 1."""

KEPT = 0.75
"""With a mask two pictures are at most about this times as far apart as one is from the picture that is kept (0.4 to
1.1, 13 masks on the icon model), both as far as they last (``Blend.lasting``)."""

NEAREST = 0.3
"""Errors at smaller distances than this part of a step are taken for those at it."""

CAREFUL = 0.05
"""Up to this budget, at most (solver's order + 1) evaluations in a row are forecast; above it, twice as many."""

LONG = 33
"""Schedules with more steps than this may forecast up to 1.5 times as many in a row at small budgets, and one more
where that costs under a quarter of the allowance. With Euler and 50 steps, four in a row wherever all of it let them
moved three of eight pictures farther than 0.05; within a quarter, none."""

Distances = list[float]
"""One number for each part of each item of the batch."""


@dataclass(frozen=True)
class Skip:
    """How an evaluation is left out: its forecast, by name, and the error of each part that it is expected to cost."""

    method: str
    cost: Distances


class ErrorRate:
    """How fast the error of one forecast grows, from its last tests: with which ``power`` of the distance is known."""

    def __init__(self, power: int) -> None:
        self._power = power
        self._rates: list[Distances] = []

    def test(self, distance: float, errors: Distances) -> None:
        scale = max(distance, NEAREST) ** self._power
        self._rates = [*self._rates[-1:], [error / scale for error in errors]]

    @property
    def known(self) -> bool:
        return bool(self._rates)

    def expected(self, distance: float) -> Distances:
        """Return the errors to expect: the worse of the last two rates."""
        scale = max(distance, NEAREST) ** self._power
        return [max(rates) * scale for rates in zip(*self._rates, strict=True)]


class Budget:
    """The account of one run; ``limit``: how far the picture may move, as a share of what another seed changes.

    ``seeds``: how far that moves each part, as it is known by now, and no less than ``core.choices.unit``.
    """

    def __init__(self, limit: float, calibration: Calibration, prior: float = PRIOR) -> None:
        self.limit = limit
        self.calibration = calibration
        self._prior = prior
        self._settled: Distances = []
        self._pending: Distances = []
        self.seeds: Distances = []

    def measure_seeds(self, measured: Distances, sigma: float) -> None:
        """Note how far the predictions have come from the first one, then their contrasts, at a noise level."""
        hidden, half = self._prior * min(sigma, 1.0), len(measured) // 2
        parts = zip(measured[:half], measured[half:], strict=True)
        self.seeds = [unit(SEEDS * math.hypot(change, hidden), contrast) for change, contrast in parts]

    def share(self, distances: Sequence[float]) -> float:
        """Return the worst part's distance as a share of what another seed changes; 0 before anything is known."""
        pairs = zip(distances, self.seeds, strict=False)
        return max((distance / max(seeds, 1e-12) for distance, seeds in pairs), default=0.0)

    @property
    def used(self) -> float:
        """The estimate for the report."""
        return self.calibration.estimate(self._sum(self._pending))

    def _sum(self, pending: Distances) -> float:
        return self.share([math.sqrt(square) for square in _added(self._settled, pending)])

    def allows(self, cost: Distances, part: float) -> bool:
        """Return whether one more skip stays inside of a part of the budget, with the solver's margin kept in hand.

        Nor may the estimate for the report be more than all of it.
        """
        errors = self._sum(_added(self._pending, _squares(cost)))
        inside = self.calibration.cautious(errors) <= self.limit * part
        return self.limit > 0 and inside and self.calibration.estimate(errors) <= self.limit

    def spend(self, cost: Distances, level: int = 0) -> None:
        """Book a skip, of a ``level``, at its expected error, until it is known better."""
        self._pending = _added(self._pending, _squares(cost))

    def settle(self, errors: Distances) -> None:
        """Replace the expected errors of the last skips by the error of one of them, which is known by now."""
        self._settled, self._pending = _added(self._settled, _squares(errors)), []


def _squares(distances: Distances) -> Distances:
    return [distance * distance for distance in distances]


def _added(first: Distances, second: Distances) -> Distances:
    if not first or not second:
        return first or second
    return [a + b for a, b in zip(first, second, strict=True)]


class Unread:
    """Measures on a device that nobody has read yet, in their order: ``kept``, each after who is told of it.

    Reading waits for the device, and then the device for Python: on an H100 about 5 ms. So there is one transfer,
    when an evaluation begins that may be left out.
    """

    def __init__(self) -> None:
        self.kept: list[tuple[Callable[[Distances], None], Tensor]] = []

    def add(self, tell: Callable[[Distances], None], measured: Tensor) -> None:
        self.kept.append((tell, measured))

    def read(self) -> bool:
        """Tell everybody; return whether there was anything."""
        kept, self.kept = self.kept, []
        rows: Distances = torch.cat([measured.flatten() for _, measured in kept]).tolist() if kept else []
        for tell, measured in kept:
            tell(rows[: measured.numel()])
            del rows[: measured.numel()]
        return bool(kept)


@dataclass
class Outcome:
    """Counts and measures of one run; no tensors.

    Attributes:
        computed: evaluations that the network did in full; the others were ``forecast``, by these ``methods``.
        share: estimated distance to the picture without the node, as a share of what another seed changes; ``largest``:
            likewise, of the largest error of a forecast that was seen. Both are of the worst of so many ``parts``.
        measured: whether the constants of the budget were measured with the run's solver.
        few: whether the rule of few steps decided; ``flow``: whether the network was trained by flow matching.
        notes: why nothing was reused, or where the node stepped aside.
    """

    steps: int = 0
    computed: int = 0
    forecast: int = 0
    share: float = 0.0
    largest: float = 0.0
    parts: int = 1
    methods: dict[str, int] = field(default_factory=dict)
    measured: bool = True
    few: bool = False
    flow: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def evaluations(self) -> int:
        return self.computed + self.forecast

    def count(self, method: str) -> None:
        """Count an evaluation that was forecast by a method, or computed where that is empty."""
        if method:
            self.forecast += 1
            self.methods[method] = self.methods.get(method, 0) + 1
        else:
            self.computed += 1

    def note(self, text: str) -> None:
        """Say something once."""
        if text not in self.notes:
            self.notes.append(text)
