"""What somebody has asked for on a component: pipelines share components, and each of them may ask and give back."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Claim:
    """What somebody has asked for on a component.

    Attributes:
        technique: its class; ``settings``: what it is made from.
        owner: the pipeline that was given to ``optimize``; None for the component itself.
        optional: whether it is left out where it cannot help; else that is an error.
    """

    technique: type[Any]
    settings: Any
    owner: weakref.ref[Any] | None
    optional: bool

    @property
    def pipeline(self) -> Any:
        """The pipeline that has asked; None if it is gone, or none did."""
        return None if self.owner is None else self.owner()
