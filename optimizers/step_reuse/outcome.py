"""The result of Reuse Steps in one sampling run, as numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

MOVED = "more than the sampler's known step moves the latent: forecasts are not corrected, and fewer are made"
NOT_FINITE = "the network's predictions are not finite, so nothing could be measured any more"
GROWS = "under a soft mask this sampler makes an error of a forecast larger in some steps, so these are computed"


@dataclass
class Outcome:
    """Counts and measures of one run; no tensors.

    Attributes:
        computed: evaluations that the network did in full.
        forecast: evaluations that were forecast.
        share: estimated distance to the picture without the node, as a share of what another seed changes.
        largest: largest error of a forecast that was seen, as a share of what another seed changes.
        parts: how many frames and streams are judged one by one; ``share`` and ``largest`` are of the worst.
        methods: how often each forecast was used.
        bytes: most memory that kept tensors took.
        measured: whether the constants of the budget were measured with the run's solver.
        flow: whether the network was trained by flow matching, as today's transformers are.
        notes: why nothing was reused, or where the node stepped aside.
    """

    steps: int = 0
    computed: int = 0
    forecast: int = 0
    share: float = 0.0
    largest: float = 0.0
    parts: int = 1
    methods: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    measured: bool = True
    flow: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def evaluations(self) -> int:
        return self.computed + self.forecast

    @property
    def steps_in_same_time(self) -> int:
        """How many steps of a plain run take as long."""
        return max(1, int(self.steps * self.computed / max(self.evaluations, 1)))

    def count(self, method: str) -> None:
        """Count an evaluation that was forecast by a method, or computed where that is empty."""
        if method:
            self.forecast += 1
            self.methods[method] = self.methods.get(method, 0) + 1
        else:
            self.computed += 1

    def note(self, text: str) -> None:
        """Say something once."""
        if text not in self.notes:
            self.notes.append(text)
