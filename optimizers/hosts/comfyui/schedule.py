"""Where in the sampling schedule a model call stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .stack import ModelCall


class SchedulePosition:
    """Reads the schedule and the noise level of one model call, as far as somebody asks: both are on the GPU."""

    def __init__(self, call: ModelCall) -> None:
        self._call = call
        self._sigmas: torch.Tensor | None = call.transformer_options.get("sample_sigmas")

    def index(self) -> torch.Tensor:
        """Return the number of the sampling step as an int64 scalar tensor on the sampling device.

        It is found from the noise level, not counted, so that the positive and the negative pass of a step get the
        same number however ComfyUI batches them. Solvers that evaluate between two steps get the nearer one. Zero if
        the model is called outside of a sampler. A tensor, so that nothing waits for the GPU and nothing recompiles.
        """
        if self._sigmas is None:
            return torch.zeros((), dtype=torch.int64, device=self._call.sigmas.device)
        sigma: torch.Tensor = self._call.sigmas.flatten()[0].to(self._sigmas)
        return (self._sigmas - sigma).abs().argmin()

    def progress(self) -> tuple[int, int]:
        """Return the number of the step and how many there are; ``(0, 0)`` outside of a sampler."""
        return (0, 0) if self._sigmas is None else (int(self.index()), len(self._sigmas) - 1)

    def is_between(self, start_percent: float, end_percent: float) -> bool:
        """Return whether the call lies between two points of the schedule: 0 is the start, 1 the end of denoising.

        Percentages become noise levels by the model's own ``percent_to_sigma``, as in ComfyUI's conditioning ranges.
        """
        sampling = self._call.model.model_sampling
        sigma = float(self._call.sigmas.flatten()[0])
        first, last = (float(sampling.percent_to_sigma(percent)) for percent in (start_percent, end_percent))
        return last < sigma <= first
