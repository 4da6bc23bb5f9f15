"""A clock of a test's own for what is tried on a run: nothing but the blocks of networks takes time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class Clock:
    """Blocks of some classes take a second of it, or ``busy`` seconds; those that were compiled take none."""

    def __init__(self, monkeypatch: Any, *kinds: type) -> None:
        from paceline.optimizers.in_comfyui.compilation import comfy_env
        from paceline.service.comfyui import evaluating, observer, probe
        from paceline.service.faster import job

        self.now, self.busy = 0.0, 1.0
        for module in (probe, evaluating, observer, comfy_env):
            monkeypatch.setattr(module, "time", self)
        for module in (probe, evaluating, job):
            monkeypatch.setattr(module, "monotonic", self.monotonic)
        for kind in kinds:
            monkeypatch.setattr(kind, "forward", self._timed(kind.forward))

    def _timed(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        clock = self

        def timed(block: Any, *args: Any, **kwargs: Any) -> Any:
            if not torch.compiler.is_compiling():
                clock.now += clock.busy
            return forward(block, *args, **kwargs)

        return timed

    def perf_counter(self) -> float:
        return self.now

    monotonic = perf_counter
