"""Watches how ComfyUI moves a MODEL's weights in two runs."""

from __future__ import annotations

import time
from typing import Any

import torch

from ...core.devices import synchronize
from ...core.technique import COMPILATION
from ...optimizers.hosts.comfyui.compilation.refusals import SECOND_COPY
from ...optimizers.hosts.comfyui.model import stack_of
from ...optimizers.hosts.comfyui.protocols import Executor, ModelPatcher
from ..measurement.weights import WeightMoves

_KEY = "paceline_weights"


class WeightWatch:
    """Times what ComfyUI does before each run of ``model``, a clone of the MODEL that it was given."""

    def __init__(self, patcher: ModelPatcher) -> None:
        from comfy.patcher_extension import WrappersMP

        self.model = patcher.clone()
        self.model.add_wrapper_with_key(WrappersMP.PREPARE_SAMPLING, _KEY, self._prepare)
        self._seconds: list[float] = []
        self._others: tuple[str, ...] = ()

    def _prepare(self, executor: Executor, *args: Any, **kwargs: Any) -> Any:
        """Load what a run needs (ComfyUI's PREPARE_SAMPLING wrapper)."""
        device = torch.device(self.model.load_device)
        self._others = self._in_its_place()
        synchronize(device)
        started = time.perf_counter()
        result = executor(*args, **kwargs)
        synchronize(device)
        self._seconds.append(time.perf_counter() - started)
        return result

    def _in_its_place(self) -> tuple[str, ...]:
        """Return the classes of the models on the device, if this one is not there."""
        import comfy.model_management

        loaded = [one.model for one in comfy.model_management.current_loaded_models if one.model is not None]
        there = [one for one in loaded if one.load_device == self.model.load_device]
        if any(one.model is self.model.model for one in there):
            return ()
        return tuple(dict.fromkeys(type(one.model).__name__ for one in there))

    def found(self) -> WeightMoves:
        """Return what was seen in the two runs that it was asked for."""
        compiled = stack_of(self.model).find(COMPILATION)
        again = self._seconds[1] if len(self._seconds) > 1 else 0.0
        return WeightMoves(
            self._seconds[0],
            again,
            self.model.loaded_size(),
            self.model.model_size(),
            self.model.is_dynamic(),
            self._others,
            compiled is not None and SECOND_COPY in compiled.policy.notes,
        )
