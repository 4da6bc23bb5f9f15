"""How far a picture moves: one number, what it means in words, and the three choices that every host offers.

The number is the root mean square of the difference to the plain picture from the same seed, as a share of what another
seed changes (``unit``); of several pictures the farthest counts. It is of latents where only these are known, else of
pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .phrases import Phrase, phrase

SAME = 0.02
"""Up to here a picture looks the same."""

HARDLY_VISIBLE = 0.1
"""Up to here a difference is hardly visible."""

VISIBLE = 0.5
"""Up to here it is the same picture with visible differences; farther away it is another one."""


SEEDS_ALIKE = 1 / 3
"""Part of a picture's contrast, the standard deviation of its values, that counts as a seed change where that is less:
a share of next to nothing says nothing about what is seen.

Without late levels, on two models whose seeds differ (by 0.5 to 1.0 of the contrast) and one whose seeds look alike
(0.06 to 0.18), logarithms of the share and of SSIM's loss correlate with 0.70 by the seed change alone, 0.87 by this
unit, 0.91 by a half. A third is on the careful side, and leaves the unit of seeds that differ as it was.
"""


def unit(seed_change: float, contrast: float) -> float:
    """Return the difference that counts as 1: what another seed changes, or a part of the contrast if that is more."""
    return max(seed_change, SEEDS_ALIKE * contrast)


@dataclass(frozen=True)
class Choice:
    """One choice. All three apply Set Attention Processor, `auto`; in ComfyUI they also compile, where that pays.

    Attributes:
        label: its name on every screen.
        sentence: what it costs.
        limit: for 9 of 10 pictures, how far left out steps and other settings may move them. It is half of what the
            label allows, because 1 in 10 moves up to three times as far. In presets the budget of Reuse Steps.
        allows: how far the farthest picture of a proof may be for the label to be true.
        merging: the preset of Apply ToMe where Reuse Steps is not applied; empty: neither is.
    """

    label: str
    sentence: str
    limit: float
    allows: float
    merging: str = ""


CHOICES: Mapping[str, Choice] = {
    "lossless": Choice("Same picture", "Only rounding may differ.", SAME, SAME),
    "balanced": Choice(
        "Hardly visible", "A little fine detail for speed.", HARDLY_VISIBLE / 2, HARDLY_VISIBLE, "quality"
    ),
    "fast": Choice("Fastest", "Detail may change where you can see it side by side.", 0.15, VISIBLE, "quality"),
}
"""By the names that workflows, presets and commands hold. ``tests/unit/test_choices.py`` holds them to the results."""


def looks(share: float) -> Phrase:
    """Return how visible such a difference is."""
    if share > VISIBLE:
        return phrase("large")
    if share > HARDLY_VISIBLE:
        return phrase("visible")
    return phrase("hardly visible") if share > SAME else phrase("not visible")
