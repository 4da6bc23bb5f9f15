"""A run on a host that sees what the solver is given: only the guided prediction is forecast, whatever it is made of.

How many passes there are, in how many calls, and how guidance joins them is the host's business then.
"""

from __future__ import annotations

from torch import Tensor

from .budget import calibration_of, rms
from .run import GUIDANCE, ReuseRun


class GuidedRun(ReuseRun):
    """The state of one run; ``begin`` is given no latent, ``finish`` takes the place of ``end``.

    Attributes:
        beside: memory of what the host keeps, in bytes.
    """

    beside = 0

    @property
    def takes_back(self) -> bool:
        """Whether what a forecast did to the latent is taken back."""
        return self._correction is not None

    def solver_unknown(self) -> None:
        """Take nothing back any more: the solver does more than its update, it adds noise for example."""
        self._correction, self._order = None, 1
        self.budget.calibration, self.outcome.measured = calibration_of(None, self.outcome.unet)

    def guess(self, latent: Tensor) -> Tensor:
        """Return the forecast of the guided prediction, float32, of the shape of ``latent``."""
        return self._guided.forecast(self.method, self.place, latent)

    def compare(self, guided: Tensor, positive: Tensor | None = None, negative: Tensor | None = None) -> None:
        """Take note of the passes of a computed evaluation, where they are known. All are float32.

        What the scale does not make of them counts as an error of leaving the negative pass out.
        """
        if self._first is None:
            self._first = (guided if positive is None else positive).clone()
        if positive is None or negative is None or self.guidance_scale is None:
            return
        change = self._passes.keep_difference(self.place, [positive, negative])
        if change is not None:
            missed = rms(negative + (positive - negative) * self.guidance_scale - guided)
            self._unread.append((GUIDANCE, change[0], change[1] * abs(self.guidance_scale - 1.0) + missed))

    def finish(self, guided: Tensor, latent: Tensor, moved: Tensor | None = None) -> Tensor:
        """Take note of the guided prediction, as ``end`` does.

        Args:
            guided: the prediction, computed or guessed.
            latent: what the solver has, float32; it must not change any more.
            moved: what somebody else did to the latent since the last step.

        Returns:
            What the solver shall be given.
        """
        self._latent = latent
        if self._correction is not None and moved is not None:
            self._correction.moved(moved)
        return self.end(guided)

    def _bytes(self) -> int:
        return super()._bytes() + self.beside
