"""What moving a MODEL's weights costs its runs, why they are moved again, and what helps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.technique import COMPILATION, find
from ..run.comfy_technique import AnyTechnique
from ..run.reporting import send
from ..structure.protocols import Executor, ModelPatcher

LOADING_EVENT = "paceline.loading"
"""Websocket event: a run has loaded weights for so many seconds. The page makes it a part of its own."""

GIB = 2**30

SECOND_COPY = (
    "a second copy of its weights, without dynamic VRAM, which cannot be compiled (to avoid it, start ComfyUI with "
    "--disable-dynamic-vram)"
)
"""Said of everything that was loaded once more to be compiled."""


_LEAST_SECONDS, _LEAST_SHARE = 0.1, 0.02
"""Shorter times, and smaller shares of a run, are not worth a sentence."""

_LEAST_MISSING = 0.05
"""Share of the weights: a network may have some that a run does not use, which dynamic VRAM leaves where they are."""

_SMALLER = "Quantize int8, or a file in fewer bits, makes the model smaller"


@dataclass(frozen=True)
class WeightMoves:
    """The weights of a model in two runs, one after the other.

    Attributes:
        first, again: seconds before the first step in the first run, and in the second.
        resident, total: bytes on the device at the end of the runs, and of all weights.
        dynamic: whether the host moves single weights as they are needed.
        others: the models that were on the device in its place before the second run.
        second_copy: whether the network is a second copy, made to be compiled.
    """

    first: float
    again: float
    resident: int
    total: int
    dynamic: bool = False
    others: tuple[str, ...] = ()
    second_copy: bool = False

    def lines(self, run_seconds: float) -> Iterator[str]:
        """Yield what is worth saying beside a run of so many seconds."""
        least = max(_LEAST_SECONDS, _LEAST_SHARE * run_seconds)
        if self.first >= least:
            yield f"loading weights before the first step took {self.first:.3g} s of {run_seconds:.3g} s"
        if self.again >= least:
            yield f"the next run loaded weights again, for {self.again:.3g} s: {self.why()}"
        missing = self.total - self.resident
        if missing > _LEAST_MISSING * self.total:
            how = "dynamic VRAM moves them" if self.dynamic else "they are moved"
            yield (
                f"{missing / GIB:.3g} of {self.total / GIB:.3g} GiB of weights do not fit on the device, "
                f"and {how} again in each step: {_SMALLER}"
            )

    def why(self) -> str:
        """Return why they are loaded again, and what helps."""
        if self.second_copy:
            return (
                "Compile UNet has made a second copy of them, and both do not fit. Start ComfyUI with "
                "--disable-dynamic-vram, or take Compile UNet off"
            )
        if self.others:
            return f"{', '.join(self.others)} took their place on the device. {_SMALLER}, so that both fit"
        if self.total - self.resident > _LEAST_MISSING * self.total:
            return f"they do not fit on the device. {_SMALLER}"
        return "ComfyUI does not tell why"


def prepare_sampling(
    techniques: Sequence[AnyTechnique], executor: Executor, patcher: ModelPatcher, *args: Any, **kwargs: Any
) -> Any:
    """Load what a run needs, and tell the page how long that took and why (ComfyUI's PREPARE_SAMPLING wrapper)."""
    others, started = in_place_of(patcher), time.perf_counter()
    result = executor(patcher, *args, **kwargs)
    seconds = time.perf_counter() - started
    node = next((technique.node_id for technique in techniques if technique.node_id is not None), None)
    if seconds >= _LEAST_SECONDS and node is not None:
        ran_before = any(technique.runs.latest is not None for technique in techniques)
        moves = weight_moves(patcher, techniques, 0.0, seconds, others, streams=True)
        why = f"loading weights again took {seconds:.3g} s: {moves.why()}" if ran_before else ""
        send(LOADING_EVENT, node, {"seconds": seconds, "why": why})
    return result


def in_place_of(patcher: ModelPatcher) -> tuple[str, ...]:
    """Return the classes of the models on a MODEL's device; none if it is there itself."""
    import comfy.model_management

    loaded = [one.model for one in comfy.model_management.current_loaded_models if one.model is not None]
    there = [one for one in loaded if one.load_device == patcher.load_device]
    if any(one.model is patcher.model for one in there):
        return ()
    return tuple(dict.fromkeys(type(one.model).__name__ for one in there))


def weight_moves(
    patcher: ModelPatcher,
    techniques: Sequence[AnyTechnique],
    first: float,
    again: float,
    others: tuple[str, ...],
    streams: bool = False,
) -> WeightMoves:
    """Return how the weights of a MODEL were moved; ``streams``: dynamic VRAM has not moved what the run needs yet."""
    compiled, total, dynamic = find(techniques, COMPILATION), patcher.model_size(), patcher.is_dynamic()
    resident = total if streams and dynamic else patcher.loaded_size()
    second_copy = compiled is not None and SECOND_COPY in compiled.policy.notes
    return WeightMoves(first, again, resident, total, dynamic, others, second_copy)
