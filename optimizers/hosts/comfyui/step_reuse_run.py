"""One sampling run of Reuse Steps on a MODEL; it goes with the run's own copy of the options."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...step_reuse.history import Passes
from ...step_reuse.rule import Action, Rule
from .evaluations import taking_part


class ReuseRun:
    """Forecasts the passes of the network one by one, because guiders and other nodes read them."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._passes = Passes()
        self._latent = torch.empty(0)
        self._active: Hashable = None
        self._calls = 0

    def begin(self, sigma: float, x: Tensor, conds: dict[str, list[dict[str, Any]]], guidance: float | None) -> None:
        """Decide about an evaluation; if other conditionings or ControlNets are active than in the last, start anew."""
        self._latent = x.float().clone()
        self._calls = 0
        active = tuple(taking_part(conds, sigma))
        if active != self._active:
            self._forget()
            self._active = active
        self.rule.begin(self.rule.place_of(sigma), guidance)

    def end(self, guided: Tensor) -> Tensor:
        """Note the guided prediction; return the prediction for the solver."""
        return self.rule.end(self._latent, guided, held=self._passes.bytes())

    def _forget(self) -> None:
        self.rule.forget()
        self._passes = Passes()

    def next_call(self) -> int:
        self._calls += 1
        return self._calls - 1

    def forecast(self, call: int, present: Sequence[bool], x: Tensor) -> list[Tensor] | None:
        """Return the forecasts of the passes of a call, or None if they are to be computed.

        An evaluation with other passes than those before starts anew.
        """
        rule = self.rule
        if rule.action is not Action.FORECAST:
            return None
        if self._passes.can(rule.method, call, present):
            return self._passes.forecast(rule.method, call, rule.place, x)
        if call == 0:
            self._forget()
        return None

    def keep(self, call: int, x: Tensor, outputs: Sequence[Tensor | None]) -> None:
        """Keep the outputs of the passes of a call; None for those that are not there."""
        same = call == 0 and self._latent.shape == x.shape
        self._passes.keep(call, self.rule.place, self._latent if same else x.float().clone(), outputs)
        if outputs[0] is not None:
            self.rule.compare(outputs[0], outputs[1] if call == 0 and len(outputs) == 2 else None)
