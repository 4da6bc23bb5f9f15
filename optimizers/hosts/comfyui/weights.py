"""Watches how ComfyUI loads a MODEL's weights before its runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from ....core.devices import synchronize
from ....core.technique import COMPILATION, find
from .protocols import Executor, ModelPatcher
from .reporting import send
from .stack import KEY, AnyTechnique
from .weight_moves import SECOND_COPY, WeightMoves

LOADING_EVENT = "paceline.loading"
"""Websocket event: a run has loaded weights for so many seconds. The page makes it a part of its own."""

_LEAST_SECONDS = 0.1
_WATCH = "paceline_weights"


class RunLoads:
    """Tells the page how long each run of a MODEL with these techniques loads weights, and why again."""

    def __init__(self, techniques: Sequence[AnyTechnique]) -> None:
        self._techniques = techniques

    def prepare_sampling(self, executor: Executor, patcher: ModelPatcher, *args: Any, **kwargs: Any) -> Any:
        """Load what a run needs (ComfyUI's PREPARE_SAMPLING wrapper)."""
        others, started = in_place_of(patcher), time.perf_counter()
        result = executor(patcher, *args, **kwargs)
        seconds = time.perf_counter() - started
        node = next((technique.node_id for technique in self._techniques if technique.node_id is not None), None)
        if seconds >= _LEAST_SECONDS and node is not None:
            ran_before = any(technique.runs.latest is not None for technique in self._techniques)
            moves = weight_moves(patcher, self._techniques, 0.0, seconds, others, streams=True)
            why = f"loading weights again took {seconds:.3g} s: {moves.why()}" if ran_before else ""
            send(LOADING_EVENT, node, {"seconds": seconds, "why": why})
        return result


class WeightWatch:
    """Times what ComfyUI does before each of two runs of ``model``, a clone of the MODEL that it was given."""

    def __init__(self, patcher: ModelPatcher) -> None:
        from comfy.patcher_extension import WrappersMP

        self.model = patcher.clone()
        self.model.add_wrapper_with_key(WrappersMP.PREPARE_SAMPLING, _WATCH, self._prepare)
        self._seconds: list[float] = []
        self._others: tuple[str, ...] = ()

    def _prepare(self, executor: Executor, *args: Any, **kwargs: Any) -> Any:
        device = torch.device(self.model.load_device)
        self._others = in_place_of(self.model)
        synchronize(device)
        started = time.perf_counter()
        result = executor(*args, **kwargs)
        synchronize(device)
        self._seconds.append(time.perf_counter() - started)
        return result

    def found(self) -> WeightMoves:
        """Return what was seen in the two runs."""
        stack = self.model.get_attachment(KEY)
        first, again = (*self._seconds, 0.0)[:2]
        return weight_moves(self.model, stack.techniques if stack else (), first, again, self._others)


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
