"""The difference that reducing makes to attention, kept in some steps and added in the others (residual sharing).

In a full step a block's attention is computed whole and reduced, and ``whole - reduced`` is kept; in the steps after it
what was kept is added to reduced attention. From step to step the difference changes far less than the picture. After
DiTFastAttn (https://arxiv.org/abs/2406.08552), which does this for attention in windows.

A host says for each evaluation of a run where it stands (`SamplingStep`), asks for each call of the network what to do
(`TokenMergingPolicy.residual_call`), and hands `ResidualCall.attend` both ways to compute each attention.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from threading import get_ident

import torch
from torch import Tensor

from ...core.devices import is_compiling, is_out_of_memory
from .method import Reduction
from .stored import MEMORY, AttentionPlace, FullSteps, Store, Stored

UNTOLD = "it is not known here where a step begins and ends"
COMPILED = "the network is compiled, and compiled code has no place here for what is kept"
SHARED_CODE = "Compile UNet compiles blocks that share code, which has no place for what is kept of each"
MERGED_INSIDE = "with Compile UNet, what is merged is decided anew in compiled code in each step"
WINDOWS = "several parts of the latent were computed one by one in a step (tiles, windows of frames)"
NO_MEMORY = "memory ran out"
FEW_STEPS = "in {steps} steps, computing {full} of them both ways costs more than it saves"
GRADIENTS = "gradients are asked for"
NOWHERE = "attention was computed where nothing can be kept (code that another node has compiled)"
NEVER_MEASURED = "another node computed attention itself, so nothing could be measured"


@dataclass(frozen=True)
class SamplingStep:
    """One prediction of a sampling run, for which the network is called once for each batch of conditionings.

    Attributes:
        levels: the noise levels of the schedule, from high to low, the last one included.
        number: counts the predictions of the run.
        sigma: the noise level of this one, on the scale of ``levels``.
        taking_part: what may change from step to step besides the noise: prompts by time, ControlNets, strengths of
            LoRAs. What was kept is measured anew after a change.
        last: whether the host knows that none comes after it, so that nothing is kept any more.
        whole: whether it is a full step, where something else than the schedule says so.
    """

    levels: Sequence[float]
    number: int
    sigma: float
    taking_part: Hashable = None
    last: bool = False
    whole: bool | None = None


@dataclass
class _Kept:
    """What is kept for one batch of conditionings, and when it was measured."""

    measured: Hashable
    number: int
    differences: dict[AttentionPlace, Stored]
    reductions: dict[AttentionPlace, Reduction] = field(default_factory=dict)


class Residuals:
    """The kept differences of one sampling run.

    Attributes:
        full, added: calls of the network that computed attention both ways, and that added what was kept.
        left_out: why others were made without what is kept.
    """

    def __init__(self, allocating: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        self.allocating = allocating
        self.store = Store()
        self.full = self.added = 0
        self.left_out: dict[str, None] = {}
        self._kept: dict[Hashable, _Kept] = {}
        self._steps: tuple[Sequence[float], FullSteps] | None = None
        self._drifts: list[Tensor] = []  # norms of a change and of the difference, on the device
        self._moved: list[float] = []  # their quotients
        self._given_up = False
        self._open: dict[int, ResidualCall] = {}  # by thread: ComfyUI may have several devices at work

    def call(
        self, evaluation: SamplingStep, levels: Sequence[float], passes: Hashable, ratio: float, again: bool = False
    ) -> ResidualCall | None:
        """Return what a call of the network for ``passes`` does; None, noted, to leave out what is kept.

        ``levels``: those of the schedule in which tokens are reduced; ``passes`` tells one batch of conditionings and
        its sizes from every other; ``ratio``: the share that reducing leaves out; ``again``: whether the same call was
        made before and its numbers are wrong.
        """
        self.settle()
        if self._steps is None or self._steps[0] != levels:
            self._steps = (levels, FullSteps(levels, ratio))
        steps = self._steps[1]
        if not steps.pay:
            self.leave_out(FEW_STEPS.format(steps=steps.steps, full=len(steps.levels)))
            return None
        if self._given_up:
            return None
        kept = self._kept.get(passes)
        if again and kept is not None:
            self.store.drop(kept.differences)
            del self._kept[passes]
            kept = None
        if kept is not None and kept.number == evaluation.number:
            self.give_up(WINDOWS)
            return None
        now = (steps.segment(evaluation.sigma), evaluation.taking_part)
        full = kept is None or (kept.measured != now if evaluation.whole is None else evaluation.whole)
        if kept is None:
            # What would be measured anew anyway is dropped, such as that of conditionings that take no part any more.
            for old in [one for one, other in self._kept.items() if other.measured != now]:
                self.store.drop(self._kept.pop(old).differences)
            kept = self._kept[passes] = _Kept(now, evaluation.number, self.store.part())
        kept.measured, kept.number = now, evaluation.number
        call = self._open[get_ident()] = ResidualCall(self, kept, full, steps.least_tokens(), evaluation.last)
        return call

    def leave_out(self, reason: str) -> None:
        """Note why a call is made without what is kept."""
        self.left_out[reason] = None

    def give_up(self, reason: str) -> None:
        """Drop everything, and keep nothing more in this run."""
        self._given_up = True
        self.drop()
        self.leave_out(reason)

    def drop(self) -> None:
        """Free the memory, and read what was measured."""
        self.settle()
        self.store.clear()
        for kept in self._kept.values():
            kept.reductions.clear()
        self._kept.clear()
        self._steps = None
        self._read()

    def settle(self) -> None:
        """Keep what compiled code has made in this thread's latest call of the network, and count the call."""
        call = self._open.pop(get_ident(), None)
        if call is None:
            return
        if not call.visits:
            return
        self.full += call.full
        self.added += not call.full
        if call.missed and not self._given_up and not self.left_out:
            self.leave_out(NEVER_MEASURED)  # where all was dropped, the reason is known
        made, call.made = call.made, {}
        for place in () if call.last else tuple(made):
            self.keep(call, place, made.pop(place).clone)
        if call.last:
            self.store.drop(call.kept.differences)

    def keep(self, call: ResidualCall, place: AttentionPlace, compute: Callable[[], Tensor]) -> None:
        """Keep the difference that ``compute()`` gives, and note how far it has moved from the one before."""
        if self._given_up:
            return
        before = call.kept.differences.get(place)
        try:
            with self.allocating():
                difference = compute()
                if before is not None and before.values.shape == difference.shape:
                    both = (difference - before.read(), difference)
                    kind = torch.promote_types(difference.dtype, torch.float32)
                    self._drifts.append(torch.stack([torch.linalg.vector_norm(x, dtype=kind) for x in both]))
                self.store.put(call.kept.differences, place, difference)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            self.give_up(NO_MEMORY)

    def with_room(self, compute: Callable[[], Tensor]) -> Tensor:
        """Return what ``compute()`` gives; where memory runs out all is dropped, and it is tried once more."""
        try:
            return compute()
        except Exception as error:
            if not is_out_of_memory(error) or self._given_up:
                raise
        self.give_up(NO_MEMORY)
        return compute()

    def lines(self) -> Iterator[str]:
        """Yield what the run came to, in words."""
        self.settle()
        self._read()
        store = self.store
        if self.added:
            kind = " in int8" if store.small else ""
            yield (
                f"residual: {self.full} of {self.full + self.added} model calls computed attention both "
                f"ways, the others added the difference that was kept ({store.most / 2**20:.1f} MiB{kind})"
            )
        if self._moved:
            mean, most = sum(self._moved) / len(self._moved), max(self._moved)
            yield f"from one full step to the next the difference changed by {mean:.0%} (most: {most:.0%})"
        if store.refused:
            limit = f"{store.limit / 2**20:.0f} MiB, {MEMORY:.0%} of the memory"
            yield f"residual left out in {len(store.refused)} blocks: all would take more than {limit}"
        for reason in self.left_out or ({} if self.full else {NOWHERE: None}):
            yield f"residual left out: {reason}"

    def _read(self) -> None:
        # Devices are waited for here, once, and not in the steps. Of an evaluation that is made again they may be NaN.
        found = (float(changed / max(size, 1e-12)) for changed, size in map(Tensor.tolist, self._drifts))
        self._moved += filter(math.isfinite, found)
        self._drifts.clear()


@dataclass
class ResidualCall:
    """What one call of the network does.

    Compiled code changes nothing of it but ``visits``, ``made`` and ``missed``, which begin alike.

    Attributes:
        residuals: of the run.
        kept: what was kept.
        full: compute attention whole, for what is kept from it.
        least: tokens that a block must have, see `FullSteps.least_tokens`.
        last: keep nothing any more.
        visits: how many attentions there were at each place.
        made: differences that compiled code has made.
        missed: whether a difference was not there.
    """

    residuals: Residuals
    kept: _Kept
    full: bool
    least: Mapping[str, int]
    last: bool = False
    visits: dict[Hashable, int] = field(default_factory=dict)
    made: dict[AttentionPlace, Tensor] = field(default_factory=dict)
    missed: bool = False

    def gains(self, tokens: int, device: torch.device) -> bool:
        """Return whether a block has so many tokens that reducing them saves more than its difference costs."""
        return tokens >= self.least.get(device.type, self.least[""])

    def reduction(self, block: str, tokens: Tensor, plan: Callable[[], Reduction]) -> Reduction:
        """Return how the tokens of the attention that comes next in a block are reduced.

        Planned in a full call, and as in that one in the others: what tokens are merged into each other changes with
        them, and with it the difference.
        """
        reductions, place = self.kept.reductions, (block, self.visits.get(block, 0) + 1)
        if self.full or place not in reductions or not reductions[place].fits(tokens):
            reductions[place] = plan()
        return reductions[place]

    def attend(self, block: Hashable, whole: Callable[[], Tensor], reduced: Callable[[], Tensor]) -> Tensor:
        """Return the output of one attention of a block, of the same shape from both functions.

        In a full call both are called, else only ``reduced``. Several of a block are told apart by their order.
        """
        self.visits[block] = visit = self.visits.get(block, 0) + 1
        place = (block, visit)
        compute = whole if self.full else reduced
        output = compute() if is_compiling() else self.residuals.with_room(compute)
        if not self.full:
            stored = self.kept.differences.get(place)
            if stored is None or stored.values.shape != output.shape or stored.values.device != output.device:
                self.missed = True
                return output
            return output + stored.read().to(output.dtype)  # which the guard may have measured in another one
        if is_compiling():  # what a graph allocates is not kept: `settle` makes a copy outside of it
            self.made[place] = output - reduced()
        elif not self.last:
            self.residuals.keep(self, place, lambda: output - reduced())
        return output


def where_kept(residual: ResidualCall | None, block: Hashable) -> ResidualCall | None:
    """Return what a call does with the difference of a block; None, as if off, where it has no room."""
    return None if residual is None or block in residual.residuals.store.refused else residual
