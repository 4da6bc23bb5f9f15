"""A network whose compiled steps are recorded and replayed, as far as its host lets them be."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from itertools import chain

import torch

from ...core.activity import Activity
from ...core.calls import Args, Kwargs
from ...core.devices import arithmetic_switches
from .cuda_graphs import RecordedFunction
from .cuda_recording import CudaRecording, Record, Tree


@dataclass(frozen=True)
class Refined:
    """One call of a network, as it is recorded.

    Attributes:
        args, kwargs: what the network reads of its arguments.
        techniques: stands for the hooks that run inside: other ones are another recording.
        activities: into which those hooks count.
        restore: puts back, into the arguments that a recording runs with, what is not part of its key.
    """

    args: Args
    kwargs: Kwargs
    techniques: Hashable = ()
    activities: Mapping[str, Activity] = field(default_factory=dict)
    restore: Callable[[Args, Kwargs], tuple[Args, Kwargs]] = lambda args, kwargs: (args, kwargs)


Refine = Callable[[Args, Kwargs], "str | Refined"]
"""Returns what of a call is recorded, or why it cannot be."""


class RecordedNetwork:
    """The calls of one network, recorded where possible.

    A recording reads the weights where they were; another LoRA or an offload moves them. ``refine``: what of a call the
    host lets be recorded; ``not_recorded`` counts the others by reason. ``version``: of the weights' places, if the
    host knows when they change; None looks at all of them in each call.
    """

    def __init__(
        self, network: torch.nn.Module, function: Callable[..., Tree], refine: Refine, record: Record = CudaRecording
    ) -> None:
        self._network = network
        self._refine = refine
        self._refined: Refined | None = None
        self._seen: tuple[Hashable, int] = (None, 0)
        self.version: Hashable = None
        self.function = function
        self.recorded = RecordedFunction(self._run, record)
        self.not_recorded: dict[str, int] = {}

    def __call__(self, *args: object, **kwargs: object) -> Tree:
        refined = self.recorded.failure or self._refine(args, kwargs)
        if isinstance(refined, str):
            self.not_recorded[refined] = self.not_recorded.get(refined, 0) + 1
            return self.function(*args, **kwargs)
        self._refined = refined
        token = (self._addresses(), arithmetic_switches(), refined.techniques)
        try:
            return self.recorded(token, *refined.args, activities=refined.activities, **refined.kwargs)
        finally:
            self._refined = None  # it holds what the call was given

    def _run(self, *args: object, **kwargs: object) -> Tree:
        assert self._refined is not None
        args, kwargs = self._refined.restore(args, kwargs)
        return self.function(*args, **kwargs)

    def _addresses(self) -> int:
        if self.version is None or self.version != self._seen[0]:
            weights = chain(self._network.parameters(), self._network.buffers())
            self._seen = self.version, hash(tuple(weight.data_ptr() for weight in weights))
        return self._seen[1]

    def lines(self) -> list[str]:
        counts = self.recorded
        held = f", {counts.held_bytes / 2**20:.0f} MiB held" if counts.held_bytes else ""
        made, played = _several(counts.recorded, "CUDA graph"), _several(counts.replayed, "step")
        lines = [f"{made} recorded, {played} replayed so far{held}"]
        if counts.dropped:
            lines.append(
                f"{_several(counts.dropped, 'CUDA graph')} given up: another kind of step came (image size, prompt "
                "length, ratio), or weights moved (LoRA, offloading)"
            )
        crowd = "more kinds take turns in one image than are kept (prompts of different lengths, areas of the image)"
        left = {crowd: counts.crowded, **self.not_recorded} if counts.crowded else self.not_recorded
        return lines + [f"{_several(count, 'step')} not recorded: {reason}" for reason, count in left.items()]


def _several(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
