"""The difference that fewer keys make to attention, kept in some steps and added in the others (residual sharing).

In a full step a block's attention is computed whole and reduced, and ``whole - reduced`` is kept; in the steps after it
what was kept is added to reduced attention. From step to step the difference changes far less than the picture. After
DiTFastAttn (https://arxiv.org/abs/2406.08552), which does this for attention in windows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar

from torch import Tensor

from ..core.devices import is_compiling, is_out_of_memory, total_memory
from ..core.not_copied import NotCopied
from .gains import FullSteps

T = TypeVar("T")

UNTOLD = "the begin and the end of a step are unknown here"
COMPILED = "the network is compiled, and compiled code cannot keep a difference here"
SHARED_CODE = "Compile UNet compiles blocks that share code, and shared code cannot keep a difference for each block"
WINDOWS = "several parts of the latent were computed one by one in a step (tiles, windows of frames)"
NO_MEMORY = "memory ran out"
FEW_STEPS = "in {steps} steps, computing {full} of them both ways costs more than it saves"
GRADIENTS = "gradients are asked for"
NOWHERE = "attention was computed in code that another node compiled, where no difference can be kept"
NEVER_MEASURED = "another node computed attention itself, so nothing could be measured"

MEMORY = 0.05
"""At most this share of a device's memory is held."""

AttentionPlace = tuple[str, int]
"""An attention: its block, and its number among those of the block in a call of the network."""


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
class PassRecord:
    """What is kept for one batch of conditionings, when it was measured, and whether it is now, or never again."""

    measured: Hashable
    number: int
    full: bool = True
    last: bool = False
    differences: dict[AttentionPlace, Tensor] = field(default_factory=dict)


class Kept(NotCopied):
    """What is kept in one sampling run, for all batches of conditionings.

    Where all differences would take more than the limit, those of the blocks with the most tokens are kept, which gain
    most for each byte.

    Attributes:
        full, added: calls of the network that computed attention both ways, and that added what was kept.
        left_out: why others were made without what is kept.
        least: tokens that a block must have, see `FullSteps.least_tokens`.
        most: bytes that were held at the same time.
        limit: bytes that may be.
        refused: blocks of which nothing is kept any more.
        share: of the run's steps that are full.
        slow: by block, how many times faster attention would get, where it stays whole for that.
    """

    def __init__(self, allocating: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        self.allocating = allocating
        self.full = self.added = 0
        self.left_out: dict[str, None] = {}
        self.least: dict[str, int] = {}
        self.most = self.limit = 0
        self.refused: set[str] = set()
        self.share = 0.0
        self.slow: dict[str, float] = {}
        self._made: dict[Hashable, Any] = {}
        self._records: dict[Hashable, PassRecord] = {}
        self._steps: tuple[Sequence[float], FullSteps] | None = None
        self._given_up = False
        self._held = 0
        self._lock = Lock()  # ComfyUI may have several devices at work

    def record(
        self, evaluation: SamplingStep, passes: Hashable, ratio: float, again: bool = False
    ) -> PassRecord | None:
        """Return the kept differences for a call of the network for ``passes``; None, noted, to leave it out.

        ``passes`` tells one batch of conditionings and its sizes from every other; ``ratio``: the share that reducing
        leaves out; ``again``: whether the same call was made before and its numbers are wrong.
        """
        if self._steps is None or self._steps[0] != evaluation.levels:
            self._steps = (evaluation.levels, FullSteps(evaluation.levels, ratio))
        steps = self._steps[1]
        if not steps.pay:
            self.leave_out(FEW_STEPS.format(steps=steps.steps, full=len(steps.levels)))
            return None
        if self._given_up:
            return None
        self.least, self.share = steps.least_tokens(), len(steps.levels) / steps.steps
        known = self._records.get(passes)
        if again and known is not None:
            self.drop(self._records.pop(passes))
            known = None
        if known is not None and known.number == evaluation.number:
            self.give_up(WINDOWS)
            return None
        now = (steps.segment(evaluation.sigma), evaluation.taking_part)
        if known is None:
            # What would be measured anew anyway is dropped, such as that of conditionings that take no part any more.
            for old in [name for name, other in self._records.items() if other.measured != now]:
                self.drop(self._records.pop(old))
            self._records[passes] = known = PassRecord(now, evaluation.number)
        else:
            known.full = known.measured != now if evaluation.whole is None else evaluation.whole
        known.measured, known.number, known.last = now, evaluation.number, evaluation.last
        return known

    def once(self, make: Callable[..., T], *of: Hashable) -> T:
        """Return ``make(*of)``, worked out once for the run."""
        if is_compiling():  # what is kept would be another input of its graph
            return make(*of)
        if (make, of) not in self._made:
            self._made[make, of] = make(*of)
        return self._made[make, of]  # type: ignore[no-any-return]

    def leave_out(self, reason: str) -> None:
        """Note why a call is made without what is kept."""
        self.left_out[reason] = None

    def give_up(self, reason: str) -> None:
        """Drop everything, and keep nothing more in this run."""
        self._given_up = True
        self.drop_all()
        self.leave_out(reason)

    def count(self, full: bool, missed: bool) -> None:
        """Count a call of the network; ``missed``: whether a difference was not there."""
        self.full += full
        self.added += not full
        if missed and not self._given_up and not self.left_out:
            self.leave_out(NEVER_MEASURED)  # where all was dropped, the reason is known

    def keep(self, record: PassRecord, place: AttentionPlace, compute: Callable[[], Tensor]) -> None:
        """Keep the difference that ``compute()`` gives, if need be in the place of others."""
        if self._given_up:
            return
        try:
            with self.allocating():
                difference = compute()
                with self._lock:
                    self._put(record, place, difference)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            self.give_up(NO_MEMORY)

    def with_room(self, compute: Callable[[], Tensor]) -> Tensor:
        """Return the result of ``compute()``; where memory runs out all is dropped, and it is tried once more."""
        try:
            return compute()
        except Exception as error:
            if not is_out_of_memory(error) or self._given_up:
                raise
        self.give_up(NO_MEMORY)
        return compute()

    def drop(self, record: PassRecord) -> None:
        """Free the differences of one batch of conditionings."""
        with self._lock:
            for place in tuple(record.differences):
                self._set(record, place, None)

    def drop_all(self) -> None:
        """Free the memory."""
        for record in self._records.values():
            self.drop(record)
        self._records.clear()
        self._made.clear()

    def lines(self) -> Iterator[str]:
        """Yield what the run came to, in words."""
        if self.added:
            yield (
                f"residual: {self.full} of {self.full + self.added} model calls computed attention both "
                f"ways, the others added the difference that was kept ({self.most / 2**20:.1f} MiB)"
            )
        if self.refused:
            limit = f"{self.limit / 2**20:.0f} MiB, {MEMORY:.0%} of the memory"
            yield f"residual left out in {len(self.refused)} blocks: all would take more than {limit}"
        for reason in self.left_out or ({} if self.full else {NOWHERE: None}):
            yield f"residual left out: {reason}"

    def _put(self, record: PassRecord, place: AttentionPlace, difference: Tensor) -> None:
        if place[0] in self.refused:
            return
        self.limit = int(MEMORY * total_memory(difference.device))
        self._set(record, place, difference)
        while self._held > self.limit:
            # Of blocks with as many tokens the latest gives way: those before it are in their place already.
            held = [each for other in self._records.values() for each in other.differences.items()]
            tokens = {key[0]: kept.shape[-2] for key, kept in held}
            refused = min(reversed(tokens), key=tokens.__getitem__)
            self.refused.add(refused)
            for other in self._records.values():
                for key in [key for key in other.differences if key[0] == refused]:
                    self._set(other, key, None)
        self.most = max(self.most, self._held)

    def _set(self, record: PassRecord, place: AttentionPlace, difference: Tensor | None) -> None:
        before = record.differences.pop(place, None)
        self._held -= 0 if before is None else before.nbytes
        if difference is not None:
            record.differences[place] = difference
            self._held += difference.nbytes
