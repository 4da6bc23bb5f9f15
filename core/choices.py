"""The three choices that every host offers: how far each lets a picture move, and what it applies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Choice:
    """One choice. All three apply Set Attention Processor, `auto`; in ComfyUI they also compile, where that pays.

    Attributes:
        label: its name on every screen.
        sentence: what it costs.
        limit: how far other settings and left out steps may move a picture, as a share of what another seed changes.
        merging: the preset of Apply ToMe; empty: neither that nor Reuse Steps is applied.
    """

    label: str
    sentence: str
    limit: float
    merging: str = ""


CHOICES: Mapping[str, Choice] = {
    "lossless": Choice("Same picture", "Only rounding may differ.", 0.02),
    "balanced": Choice("Hardly visible", "A little fine detail for speed.", 0.05, "quality"),
    "fast": Choice(
        "Fastest",
        "Detail may change where you can see it side by side.",
        0.15,
        "fast",
    ),
}
"""By the names that workflows, presets and commands hold. ``tests/unit/test_choices.py`` holds them to the results."""
