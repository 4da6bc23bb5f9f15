"""Whether a sampler goes where the rule can follow: down its schedule, level by level, with one latent."""

from __future__ import annotations

from ..samplers import Place

RISES = "the noise rises again within the run, and what was measured before says nothing about it"
RESIZED = "the sampler, or a node around it, asks for latents of several sizes"
TWICE = "the sampler, or a node around it, asks several times at one noise level"

SAME = 1e-4
"""Noise levels that differ by less than this part are one."""


class Path:
    """The way of one run so far.

    Attributes:
        last: where it was last.
    """

    def __init__(self, once: bool) -> None:
        """``once``: whether its sampler asks once at each noise level."""
        self._once = once
        self.last: Place | None = None

    def refusal(self, place: Place) -> str | None:
        """Return why the rule cannot follow to an evaluation at ``place``; None if it can."""
        last = self.last
        if last is None or place.sigma < last.sigma * (1 - SAME):
            return None
        return RISES if place.sigma > last.sigma * (1 + SAME) else TWICE if self._once else None
