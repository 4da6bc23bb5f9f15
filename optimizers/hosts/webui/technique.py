"""A technique in this host: for one sampling run, on one network."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ....core import technique as core
from ....core.activity import Activity, Summary
from ....core.shadow import Shadows


@dataclass(frozen=True)
class Said:
    """What one technique says of a sampling run."""

    title: str
    summary: Summary

    @property
    def line(self) -> str:
        return f"Paceline {self.title}: {self.summary.headline}"


class WebUITechnique(core.Technique):
    """One optimization of one network while one picture is sampled. `CannotHelp` where it is made: it is left out."""

    def __init__(self, policy: core.Policy) -> None:
        super().__init__(policy)
        self.activity = Activity()

    def attach(self, shadows: Shadows) -> None:  # noqa: B027
        """Put hooks on the network."""

    def before(self, x: Tensor) -> None:
        """Get ready for one call of the network for passes with the latents ``x`` ``[rows, channels, ...]``."""
        self.activity.model_calls += 1

    def said(self) -> Said:
        return Said(self.title, self.policy.summarize(self.activity))
