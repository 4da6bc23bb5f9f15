"""Where in the sampling schedule a call of the denoiser stands."""

from __future__ import annotations

from typing import Any

import torch


class SchedulePosition:
    """Reads a pipeline's scheduler, as far as somebody asks.

    Args:
        pipeline: with a ``scheduler``; None for a model on its own, which is always at step 0.
    """

    def __init__(self, pipeline: Any) -> None:
        self._scheduler = getattr(pipeline, "scheduler", None)
        self._timesteps: Any = None
        self._values: list[float] = []

    def is_new_run(self, pipeline: Any) -> bool:
        """Return whether the schedule was made anew since the last time this was asked."""
        self._scheduler = getattr(pipeline, "scheduler", None)
        timesteps = getattr(self._scheduler, "timesteps", None)
        if timesteps is self._timesteps:
            return False
        self._timesteps, self._values = timesteps, []
        return True

    def index(self, timestep: Any) -> int:
        """Return the number of the step.

        Most schedulers count their steps themselves. Where one does not, the step is found by its timestep, which
        waits for the device.
        """
        if self._timesteps is None:
            return 0
        counted = getattr(self._scheduler, "step_index", None)
        if counted is not None:
            return int(counted)
        if hasattr(self._scheduler, "step_index"):
            return int(getattr(self._scheduler, "begin_index", None) or 0)  # before the first step
        now = _number(timestep)
        values = self._timestep_values()
        return min(range(len(values)), key=lambda i: abs(values[i] - now)) if values else 0

    def percent(self, timestep: Any) -> float:
        """Return how much of the noise schedule lies behind this step: 0 is pure noise, 1 the finished image."""
        values = self._timestep_values()
        if not values:
            return 0.0
        assert self._scheduler is not None, "it has timesteps"
        training = float(self._scheduler.config.get("num_train_timesteps", 1000))
        return 1.0 - values[min(self.index(timestep), len(values) - 1)] / training

    def ramp_factor(self, ramp: str, timestep: Any) -> float:
        """Return the factor of a ratio that changes over the steps: one for each half of them, 1 and 0.5.

        In two stages, as each ratio gives tensors of another size, and each size is another compiled graph.
        """
        if ramp == "none" or self._timesteps is None:
            return 1.0
        in_first_half = self.index(timestep) * 2 < len(self._timesteps)
        return 1.0 if in_first_half == (ramp == "fade_out") else 0.5

    def _timestep_values(self) -> list[float]:
        if not self._values and self._timesteps is not None:
            self._values = [float(value) for value in self._timesteps.tolist()]
        return self._values


def _number(timestep: Any) -> float:
    return float(timestep.flatten()[0]) if isinstance(timestep, torch.Tensor) else float(timestep)
