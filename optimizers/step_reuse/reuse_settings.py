"""Settings of Reuse Steps."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.choices import CHOICES, looks
from ..core.phrases import phrase
from ..core.settings import Settings, number

FEWEST_STEPS = 5
"""With fewer steps each changes the picture too much to be left out, or no later one confirms that it did not."""

SHORT = 15
"""Runs of up to so many steps have a rule of their own (``short_rule.py``), where the sampler's step is known."""

TOOLTIPS = {
    "budget": "How far the picture may move from the plain picture, as a share of a seed change (the difference of two "
    f"seeds): {', '.join(f'{one.limit:g} {one.label.lower()}' for one in CHOICES.values())}. Larger is faster, 0 skips "
    "nothing."
}
"""Text for the user about the setting that every host shows."""


@dataclass(frozen=True)
class StepReuseSettings(Settings):
    """Settings of Reuse Steps; `InvalidSetting` if a value is not allowed.

    ``budget``: how far the picture may move, as a share of what another seed changes.
    """

    budget: float = number(CHOICES["balanced"].limit, 0.0, 1.0)

    def clauses(self) -> tuple[str, ...]:
        return (
            phrase(
                "difference {looks} at most: {percent:g} % of a seed change",
                looks=looks(self.budget),
                percent=self.budget * 100,
            ),
        )
