"""How much of a sampling step Apply ToMe itself takes: deciding which tokens go, and taking and giving them back."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from statistics import median
from typing import Any
from unittest.mock import patch

import torch


class _Span:
    """The time one piece of work takes on the device it runs on, without waiting for it."""

    def __init__(self, on_gpu: bool) -> None:
        self._start = self._mark(on_gpu)
        self._end: Any = None
        self._on_gpu = on_gpu

    @staticmethod
    def _mark(on_gpu: bool) -> Any:
        if not on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def close(self) -> None:
        self._end = self._mark(self._on_gpu)

    @property
    def seconds(self) -> float:
        """Valid once the device is synchronized."""
        return self._start.elapsed_time(self._end) / 1000 if self._on_gpu else self._end - self._start


@dataclass
class OwnCost:
    """Times what Apply ToMe adds to the sampling runs of one model.

    Attributes:
        matching: for each run, share of its time in which tokens to take away were decided.
        moving: for each run, share of its time in which tokens were taken away or put back.
    """

    matching: list[float] = field(default_factory=list)
    moving: list[float] = field(default_factory=list)

    def around(self, run: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Run once, with every reduction that is planned inside of it timed."""
        on_gpu = torch.cuda.is_available()
        spans: dict[str, list[_Span]] = {"plan": [], "move": []}

        def timed(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                span = _Span(on_gpu)
                result = function(*args, **kwargs)
                span.close()
                spans[kind].append(span)
                return result

            return call

        def planning(original: Callable[..., Any]) -> Callable[..., Any]:
            def plan(*args: Any) -> Any:
                reduction = timed("plan", original)(*args)
                for name in ("reduce", "restore"):  # frozen, so that nobody changes one by accident
                    object.__setattr__(reduction, name, timed("move", getattr(reduction, name)))
                return reduction

            return plan

        with ExitStack() as patched:
            for method in import_module("paceline.optimizers.token_merging").METHODS.values():
                if hasattr(method, "plan"):  # `auto` has none
                    patched.enter_context(patch.object(method, "plan", planning(method.plan)))
            whole = _Span(on_gpu)
            result = run()
            whole.close()
        if on_gpu:
            torch.cuda.synchronize()
        self.matching.append(sum(span.seconds for span in spans["plan"]) / whole.seconds)
        self.moving.append(sum(span.seconds for span in spans["move"]) / whole.seconds)
        return result

    def shares(self, runs: int) -> dict[str, float]:
        """Return the medians of the last ``runs`` runs."""
        return {"matching": median(self.matching[-runs:]), "moving": median(self.moving[-runs:])}
