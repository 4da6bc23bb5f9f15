"""Watches what is computed approximately for numbers that are wrong, without waiting for the device.

Kernels that quantise, half precision and generated code can go wrong on one model, size or GPU only, after a test call
was right: a black picture, or one that morphs. So for each evaluation of a network a few numbers are kept, and read
when they have arrived:

- every evaluation: whether its output is finite;
- the first one of a run: how far each attention layer is from exact attention, at ``QUERIES`` of its queries. That
  finds a single wrong layer, and costs less than two layers of exact attention in all.

A wrong layer is computed exactly from then on; with numbers that are not finite, or more wrong layers in the next
attempt, all that is approximate is left out. On a processor the numbers are there at once, so the spoiled evaluation is
computed again and the run goes on. On a GPU they arrive while the next evaluation begins, when the sampler has made use
of the spoiled one: then the sampler begins again with the same noise, and gives what a run without the approximation
would have given. At the end of a run, where hosts wait for the device anyway, the last numbers are waited for.

Not found: wrong but finite numbers after the first evaluation, and wrong layers inside of compiled code.

Pipelines of diffusers cannot begin again, so there the numbers of each evaluation are waited for. In ComfyUI
neither VAEs are watched, as formats in which one fails are refused, nor ControlNets, where only code is generated.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from .core.not_copied import NotCopied
from .core.phrases import Phrase, phrase, translatable

QUERIES = 64
"""Queries of each layer for which exact attention is computed, evenly spread."""

TOLERANCE = 0.2
"""Relative L2 distance from exact attention that counts as wrong: kernels in 8 bits stay below 0.1."""


_FAR_AGAIN = translatable("{what} was far from exact attention again, so it is not used")
_BEGAN_AGAIN = translatable(
    "{what} gave numbers that are not finite in evaluation {number}: the run began again without it"
)
_WENT_ON = translatable(
    "{what} gave numbers that are not finite in evaluation {number}: from there on the run is without it"
)


class Spoiled(Exception):
    """An earlier evaluation was wrong: the sampler has to begin again."""


@dataclass
class Known:
    """What is not used with one model and size: some layers, by their place among the attention calls, or anything."""

    layers: frozenset[int] = frozenset()
    exact: bool = False


_known: WeakKeyDictionary[object, dict[Hashable, Known]] = WeakKeyDictionary()
"""What went wrong until now, by the model; it goes with the model, or when the program ends."""


class AsyncCopy:
    """A few numbers ``[n]`` on their way from a device to the processor; those on a processor are there at once.

    Only CUDA (and ROCm) tells without waiting whether a copy is done; from other devices they arrive with ``wait``.
    """

    def __init__(self, numbers: Tensor) -> None:
        self._numbers, self._copied = numbers, None
        if numbers.device.type == "cuda" and torch.cuda.is_available():
            with torch.cuda.device(numbers.device):
                self._numbers = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
                self._numbers.copy_(numbers, non_blocking=True)
                self._copied = torch.cuda.Event()
                self._copied.record()

    def ready(self) -> Sequence[float] | None:
        """Return the numbers if they have arrived, else None; never waits."""
        there = self._numbers.device.type == "cpu" if self._copied is None else self._copied.query()
        return self._numbers.tolist() if there else None

    def wait(self) -> Sequence[float]:
        """Wait for the numbers and return them."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._numbers.tolist()


class GuardedEvaluation(NotCopied):
    """The numbers of one evaluation that tell whether it is right; ``number`` counts from 1.

    ``compares``: whether its attention layers are compared with exact attention; ``left``: layers to compute exactly.
    """

    def __init__(
        self,
        number: int,
        known: Known,
        compares: bool,
        keeping: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.number, self.known, self.left = number, known, known.layers
        self.compares = compares and not known.exact
        self._keeping = keeping
        self._layers: list[int] = []
        self._norms: list[Tensor] = []
        self._calls = 0
        self.arriving: AsyncCopy  # from ``close`` on

    def next_layer(self) -> int:
        """Return the place of an attention call among those of this evaluation."""
        self._calls += 1
        return self._calls - 1

    def compare(self, layer: int, found: Tensor, exact: Tensor) -> None:
        """Keep how far some rows of a layer's output are from exact ones of the same shape."""
        with self._keeping():
            exact = exact.float()
            self._norms += [torch.linalg.vector_norm(found.float() - exact), torch.linalg.vector_norm(exact)]
        self._layers.append(layer)

    def close(self, output: Tensor) -> AsyncCopy:
        """Let the numbers of this evaluation travel to the processor; ``output`` is what the network has answered."""
        # Not finite in any place, not finite in the sum; one kernel, and one number to copy.
        total = output.sum(dtype=torch.float32)
        self.arriving = AsyncCopy(torch.stack([total, *self._norms]) if self._norms else total.reshape(1))
        self._norms = []
        return self.arriving

    def verdict(self, numbers: Sequence[float]) -> tuple[bool, frozenset[int]]:
        """Return whether the output was finite, and which layers were wrong."""
        pairs = zip(self._layers, numbers[1::2], numbers[2::2], strict=True)
        # Where exact attention is not finite either, the layer was given such numbers.
        wrong = {layer for layer, far, size in pairs if math.isfinite(size) and not far <= TOLERANCE * size}
        return math.isfinite(numbers[0]), frozenset(wrong)


Evaluate = Callable[[GuardedEvaluation | None, bool], Any]
"""Evaluates the network: given what is watched, and whether the same was evaluated before and was wrong."""


@dataclass
class Guard(NotCopied):
    """The guard of one sampling run.

    Attributes:
        what: what is approximate, in words, e.g. ``("sage",)``.
        faults: what has happened, as phrases.
        can_begin_again: whether somebody catches ``Spoiled``.
    """

    what: tuple[str, ...]
    keeping: Callable[[], AbstractContextManager[object]] = nullcontext
    faults: dict[str, None] = field(default_factory=dict)
    can_begin_again: bool = False
    _under_way: deque[GuardedEvaluation] = field(default_factory=deque)
    _evaluations: int = 0
    _compares: bool = True
    _given_up: bool = False
    _spoiled: bool = False
    _lock: Lock = field(default_factory=Lock)

    def evaluation(self, model: object, size: Hashable) -> GuardedEvaluation | None:
        """Begin an evaluation; None where nothing is watched any more, because it is wrong without our doing.

        Raises `Spoiled` if an earlier one is known to be wrong by now.
        """
        self._read(waiting=False)
        if self._given_up:
            return None
        known = _known.setdefault(model, {}).setdefault((self.what, size), Known())
        if not self._evaluations and not self.faults and (known.exact or known.layers):
            self._say(
                phrase("{what} is not used with this model and size, where it went wrong before", what=self._words)
                if known.exact
                else phrase(
                    "{what} is not used in {count} {count|layer|layers}, where it went wrong before",
                    what=self._words,
                    count=len(known.layers),
                )
            )
        self._evaluations += 1
        compares, self._compares = self._compares, False
        return GuardedEvaluation(self._evaluations, known, compares, self.keeping)

    def watch(self, model: object, size: Hashable, evaluate: Evaluate, waiting: bool = False) -> Any:
        """Return the result of one evaluation; raises `Spoiled` as ``evaluation``. ``waiting`` as in `closed`."""
        evaluation, again = self.evaluation(model, size), False
        while True:
            result = evaluate(evaluation, again)
            values = result.values() if isinstance(result, dict) else result if isinstance(result, tuple) else (result,)
            output = next((value for value in values if isinstance(value, Tensor)), None)
            if evaluation is None or output is None or not self.closed(evaluation, output, waiting):
                return result
            again = True
            if self._given_up:
                evaluation = None
                continue
            compares, self._compares = self._compares, False
            evaluation = GuardedEvaluation(evaluation.number, evaluation.known, compares, self.keeping)

    def closed(self, evaluation: GuardedEvaluation, output: Tensor, waiting: bool = False) -> bool:
        """End an evaluation; return whether it is known to be wrong already, and is to be computed again.

        ``waiting``: for its numbers, where nobody can begin again later.
        """
        arriving = evaluation.close(output)
        numbers = arriving.wait() if waiting else arriving.ready()
        with self._lock:
            if numbers is not None:
                return self._judge(evaluation, numbers, begins_again=False)
            self._under_way.append(evaluation)
        return False

    def settle(self) -> None:
        """Wait for what has not arrived yet, at the end of a run; raises `Spoiled` as ``evaluation``."""
        self._read(waiting=True)

    def begin_again(self) -> None:
        """Forget the attempt that was spoiled."""
        self._under_way.clear()
        self._spoiled = False
        self._evaluations, self._compares = 0, True

    def _read(self, waiting: bool) -> None:
        with self._lock:  # the clones for several GPUs run in threads of their own
            while self._under_way:
                first = self._under_way[0]
                numbers = first.arriving.wait() if waiting else first.arriving.ready()
                if numbers is None:
                    return
                self._under_way.popleft()
                if self._judge(first, numbers, begins_again=self.can_begin_again) and self.can_begin_again:
                    self._under_way.clear()
                    self._spoiled = True
        if self._spoiled:  # also if another pack has swallowed it before
            raise Spoiled

    def _judge(self, evaluation: GuardedEvaluation, numbers: Sequence[float], begins_again: bool) -> bool:
        finite, wrong = evaluation.verdict(numbers)
        known = evaluation.known
        if finite and not wrong:
            return False
        if known.exact:
            self._given_up = True
            known.exact, known.layers = False, frozenset()
            self._say(phrase("numbers that are not finite, even without {what}", what=self._words))
            return False
        if wrong and not known.layers:
            known.layers, self._compares = wrong, True
            text = phrase(
                "{what} was far from exact attention in {count} {count|layer|layers}, now computed exactly",
                what=self._words,
                count=len(wrong),
            )
        else:
            known.exact = True
            not_finite = _BEGAN_AGAIN if begins_again else _WENT_ON
            text = phrase(_FAR_AGAIN if wrong else not_finite, what=self._words, number=evaluation.number)
        self._say(text)
        return True

    @property
    def _words(self) -> str:
        return " or ".join(self.what)

    def _say(self, text: Phrase) -> None:
        self.faults[text] = None


def rows_to_compare(tokens: int) -> slice:
    """Return the queries for which exact attention is computed, of ``tokens``."""
    step = -(-tokens // QUERIES)
    return slice(None, None, step)
