"""How much a MODEL computed in one sampling run, and how long that took."""

from __future__ import annotations

import time
from typing import Any

import torch

from ...core.devices import synchronize
from ...optimizers.hosts.comfyui.protocols import Executor, ModelPatcher

_KEY = "paceline_work"


class WorkCount:
    """Counts pictures that the network is given (the positive and the negative pass both count), and seconds.

    It is on a MODEL that :meth:`on` returns, below everything that leaves out calls of the network.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.seconds = 0.0

    def on(self, model: ModelPatcher) -> ModelPatcher:
        """Return a clone that is counted; :func:`work_of` finds the count on it."""
        from comfy.patcher_extension import WrappersMP

        clone = model.clone()
        # Where others wrap the network itself, as EasyCache does, below them. Elsewhere not: it may be compiled.
        inside = clone.wrappers.get(WrappersMP.DIFFUSION_MODEL)
        where = WrappersMP.DIFFUSION_MODEL if inside else WrappersMP.APPLY_MODEL
        clone.add_wrapper_with_key(where, _KEY, self._count)
        clone.add_wrapper_with_key(WrappersMP.OUTER_SAMPLE, _KEY, self._time)
        clone.set_attachments(_KEY, self)
        return clone

    def _count(self, executor: Executor, latent: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        self.rows += len(latent)
        return executor(latent, *args, **kwargs)

    def _time(self, executor: Executor, *args: Any, **kwargs: Any) -> Any:
        device = torch.device(executor.class_obj.model_patcher.load_device)
        synchronize(device)
        started = time.perf_counter()
        try:
            return executor(*args, **kwargs)
        finally:
            synchronize(device)
            self.seconds += time.perf_counter() - started


def work_of(model: ModelPatcher) -> WorkCount:
    """Return the count of a MODEL that :meth:`WorkCount.on` has returned."""
    count: WorkCount = model.get_attachment(_KEY)
    return count
