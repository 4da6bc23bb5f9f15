"""The difference that reducing makes to attention, kept in some steps and added in the others (residual sharing).

In a full step a block's attention is computed whole and reduced, and ``whole - reduced`` is kept; in the steps after it
what was kept is added to reduced attention. From step to step the difference changes far less than the picture. After
DiTFastAttn (https://arxiv.org/abs/2406.08552), which does this for attention in windows.

A host says for each evaluation of a run where it stands (`Evaluation`), asks for each call of the network what to do
(`TokenMergingPolicy.residual_call`), and hands `ResidualCall.attend` both ways to compute each attention.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...core.devices import is_out_of_memory, total_memory
from .method import Reduction

PARTS = {"auto": 0.6, "seldom": 0.25, "start": 0.0}
"""By choice, the part of what reducing saves that full steps may cost, the first two excepted, which are always full.

The first alone tells little: its picture is noise.
"""

FIRST = 3
"""So many steps are full one after the other, if so many are; from then on they are evenly apart."""

MEMORY = 0.05
"""Kept is at most this share of a device's memory: half of it as it is, then in float8, then nothing more."""

UNTOLD = "it is not known here where a step begins and ends"
COMPILED = "Compile UNet is on, and compiled code has no place for what is kept"
WINDOWS = "several parts of the latent were computed one by one in a step (tiles, windows of frames)"
NO_MEMORY = "memory ran out"
LIMITED = "for some blocks: all differences would take more than {share:.0%} of the memory"
FEW_STEPS = "in {steps} steps, computing {full} of them both ways costs more than it saves"
GRADIENTS = "gradients are asked for"
NOWHERE = "attention was computed where nothing can be kept (code that another node has compiled)"
NEVER_MEASURED = "another node computed attention itself, so nothing could be measured"


@dataclass(frozen=True)
class Evaluation:
    """One prediction of a sampling run, for which the network is called once for each batch of conditionings.

    Attributes:
        levels: the noise levels of the schedule, from high to low, the last one included.
        number: counts the predictions of the run.
        sigma: the noise level of this one, on the scale of ``levels``.
        taking_part: what may change from step to step besides the noise: prompts by time, ControlNets, strengths of
            LoRAs. What was kept is measured anew after a change.
        last: whether the host knows that none comes after it, so that nothing is kept any more.
    """

    levels: Sequence[float]
    number: int
    sigma: float
    taking_part: Hashable = None
    last: bool = False


class FullSteps:
    """Where the full steps of a schedule are: by noise level, so that solvers may evaluate as often as they like."""

    def __init__(self, levels: Sequence[float], share: float) -> None:
        """``levels``: of the schedule, the last one included; ``share``: at most this part of its steps, but two."""
        steps = levels[:-1]
        self.steps = len(steps)
        full = min(max(2, int(share * self.steps + 1e-6)), self.steps)
        first, later = steps[: min(full, FIRST)], max(full - FIRST, 0)
        apart = (self.steps - FIRST) / (later + 1)
        self.levels = [*first, *(steps[FIRST - 1 + round(number * apart)] for number in range(1, later + 1))]

    def pay(self, ratio: float) -> bool:
        """Return whether they cost less attention than leaving out ``ratio`` of it in all steps saves."""
        return len(self.levels) < ratio * self.steps

    def segment(self, sigma: float) -> int:
        """Return how many full steps there are down to a noise level: the first evaluation of each segment is full."""
        return sum(level >= sigma * (1 - 1e-4) for level in self.levels)


@dataclass
class _Kept:
    """What is kept for one batch of conditionings, and when it was measured."""

    measured: Hashable
    number: int
    differences: dict[tuple[Hashable, int], _Stored] = field(default_factory=dict)
    reductions: dict[str, Reduction] = field(default_factory=dict)


@dataclass(frozen=True)
class _Stored:
    """A difference; in float8 with a scale for each token, a quarter of fp32."""

    values: Tensor
    scale: Tensor | None = None

    @classmethod
    def in_float8(cls, difference: Tensor) -> _Stored:
        scale = (difference.abs().amax(-1, keepdim=True) / 448).clamp(min=torch.finfo(difference.dtype).tiny)
        return cls((difference / scale).to(torch.float8_e4m3fn), scale)

    @property
    def bytes(self) -> int:
        return self.values.nbytes + (0 if self.scale is None else self.scale.nbytes)

    def read(self) -> Tensor:
        return self.values if self.scale is None else self.values.to(self.scale.dtype) * self.scale


@dataclass
class Outcome:
    """What a run came to: its calls of the network, and why others were made without what is kept."""

    full: int = 0
    added: int = 0
    bytes: int = 0
    drifts: list[float] = field(default_factory=list)
    left_out: dict[str, None] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """Yield it in words."""
        if self.added:
            calls = self.full + self.added
            yield (
                f"residual: {self.full} of {calls} model calls computed attention both ways, the others added the "
                f"difference that was kept ({self.bytes / 2**20:.1f} MiB)"
            )
        if self.drifts:
            mean = sum(self.drifts) / len(self.drifts)
            yield f"from one full step to the next the difference changed by {mean:.0%} (most: {max(self.drifts):.0%})"
        for reason in self.left_out or ({} if self.full else {NOWHERE: None}):
            yield f"residual left out: {reason}"


class Residuals:
    """The kept differences of one sampling run."""

    def __init__(self, allocating: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        self.allocating = allocating
        self.outcome = Outcome()
        self._kept: dict[Hashable, _Kept] = {}
        self._steps: tuple[Sequence[float], FullSteps] | None = None
        self._drifts: list[Tensor] = []
        self._given_up = False

    def call(
        self, evaluation: Evaluation, levels: Sequence[float], passes: Hashable, ratio: float, part: float
    ) -> ResidualCall | None:
        """Return what a call of the network for ``passes`` does; None, noted, to leave out what is kept.

        ``levels``: those of the schedule in which tokens are reduced; ``passes`` tells one batch of conditionings and
        its sizes from every other; ``ratio``: the share that reducing leaves out; ``part``: of ``PARTS``.
        """
        steps = self._full_steps(levels, ratio * part)
        if not steps.pay(ratio):
            self.leave_out(FEW_STEPS.format(steps=steps.steps, full=len(steps.levels)))
            return None
        if self._given_up:
            return None
        kept = self._kept.get(passes)
        if kept is not None and kept.number == evaluation.number:
            self.give_up(WINDOWS)
            return None
        now = (steps.segment(evaluation.sigma), evaluation.taking_part)
        full = kept is None or kept.measured != now
        if kept is None:
            self._drop_old(now)
            kept = self._kept[passes] = _Kept(now, evaluation.number)
        kept.measured, kept.number = now, evaluation.number
        return ResidualCall(self, kept, full, evaluation.last)

    def leave_out(self, reason: str) -> None:
        """Note why a call is made without what is kept."""
        self.outcome.left_out[reason] = None

    def not_there(self) -> None:
        """Note that for an attention nothing was kept; where all was dropped, the reason is known."""
        if not self._given_up and not self.outcome.left_out:
            self.leave_out(NEVER_MEASURED)

    def give_up(self, reason: str) -> None:
        """Drop everything, and keep nothing more in this run."""
        self._given_up = True
        self.drop()
        self.leave_out(reason)

    def drop(self) -> None:
        """Free the memory, and read what was measured."""
        for kept in self._kept.values():
            kept.differences.clear()
            kept.reductions.clear()
        self._kept.clear()
        self._steps = None
        self._read()

    def lines(self) -> Iterator[str]:
        """Yield what the run came to, in words."""
        self._read()
        return self.outcome.lines()

    def _read(self) -> None:
        # Devices are waited for here, once, and not in the steps.
        self.outcome.drifts += [float(changed / max(size, 1e-12)) for changed, size in map(Tensor.tolist, self._drifts)]
        self._drifts.clear()

    def measured(self, kept: _Kept, place: tuple[Hashable, int], whole: Tensor, reduced: Tensor) -> None:
        """Keep the difference of the two at ``place``, and note how far it has moved from the one before."""
        before = kept.differences.pop(place, None)
        held = sum(one.bytes for each in self._kept.values() for one in each.differences.values())
        with self.allocating():
            difference = whole - reduced
            if before is not None and before.values.shape == difference.shape:
                both = (difference - before.read(), difference)
                self._drifts.append(torch.stack([torch.linalg.vector_norm(one, dtype=torch.float32) for one in both]))
            stored = self._stored(difference, held)
        if stored is None:
            self.leave_out(LIMITED.format(share=MEMORY))
            return
        kept.differences[place] = stored
        self.outcome.bytes = max(self.outcome.bytes, held + stored.bytes)

    def _stored(self, difference: Tensor, held: int) -> _Stored | None:
        """Return a difference as it is kept beside ``held`` bytes; None if that would be too many."""
        limit = MEMORY * total_memory(difference.device)
        if held + difference.nbytes <= limit / 2:
            return _Stored(difference)
        small = _Stored.in_float8(difference)
        return small if held + small.bytes <= limit else None

    def _full_steps(self, levels: Sequence[float], share: float) -> FullSteps:
        if self._steps is None or self._steps[0] != levels:
            self._steps = (levels, FullSteps(levels, share))
        return self._steps[1]

    def _drop_old(self, now: Hashable) -> None:
        """Drop what would be measured anew anyway, such as that of conditionings that take no part any more."""
        for passes in [one for one, kept in self._kept.items() if kept.measured != now]:
            del self._kept[passes]


@dataclass
class ResidualCall:
    """What one call of the network does. ``full``: compute attention whole, for what is kept from it."""

    _residuals: Residuals
    _kept: _Kept
    full: bool
    _last: bool = False
    _visits: dict[Hashable, int] = field(default_factory=dict)

    def reduction(self, place: str, plan: Callable[[], Reduction]) -> Reduction:
        """Return how the tokens at ``place`` are reduced: planned in a full call, and as in that one in the others.

        What tokens are merged into each other changes with them, and with it the difference.
        """
        reductions = self._kept.reductions
        if self.full or place not in reductions:
            reductions[place] = plan()
        return reductions[place]

    def attend(self, place: Hashable, whole: Callable[[], Tensor], reduced: Callable[[], Tensor]) -> Tensor:
        """Return the output of one attention at ``place``, of the same shape from both functions.

        In a full call both are called, else only ``reduced``. Several at one place are told apart by their order.
        """
        if not self._visits:
            self._residuals.outcome.full += self.full
            self._residuals.outcome.added += not self.full
        visit = self._visits[place] = self._visits.get(place, 0) + 1
        key = (place, visit)
        if not self.full:
            output, stored = reduced(), self._kept.differences.get(key)
            if stored is None or stored.values.shape != output.shape or stored.values.device != output.device:
                self._residuals.not_there()
                return output
            if self._last:
                del self._kept.differences[key]
            return output + stored.read()
        if self._last:
            return whole()
        try:
            output = whole()
            self._residuals.measured(self._kept, key, output, reduced())
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            self._residuals.give_up(NO_MEMORY)
            self.full = False
            return reduced()
        return output
