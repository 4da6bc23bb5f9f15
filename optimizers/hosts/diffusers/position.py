"""Where in the sampling schedule a call of the denoiser stands."""

from __future__ import annotations

from typing import Any

import torch


class PipelinePosition:
    """Reads a pipeline's scheduler when it is asked. Without a pipeline it is always at step 0."""

    def __init__(self) -> None:
        self._scheduler: Any = None
        self._timestep: Any = None
        self._timesteps: torch.Tensor | None = None
        self._values: list[float] = []

    @property
    def timestep(self) -> object:
        """What the denoiser was called with."""
        return self._timestep

    @property
    def timesteps(self) -> torch.Tensor | None:
        """The scheduler's; None without a scheduler."""
        return self._timesteps

    def moved_to(self, pipeline: object, timestep: object) -> None:
        """Go to a call of the denoiser."""
        self._timestep = timestep
        self._scheduler = getattr(pipeline, "scheduler", None)
        timesteps = getattr(self._scheduler, "timesteps", None)
        if timesteps is not self._timesteps:
            self._timesteps, self._values = timesteps, []

    def index(self) -> int:
        """Return the number of the step.

        Where the scheduler does not count, it is found by where the timestep stands among the scheduler's, as most
        pipelines hand on an element of them; else by its value, which waits for the device.
        """
        if self._timesteps is None:
            return 0
        counted = getattr(self._scheduler, "step_index", None)
        if counted is not None:
            return int(counted)
        if hasattr(self._scheduler, "step_index"):
            return int(getattr(self._scheduler, "begin_index", None) or 0)  # before the first step
        values = self.schedule()
        given, place = self._timestep, _place_of(self._timestep, self._timesteps)
        now = _number(given) if place is None else values[place]
        return min(range(len(values)), key=lambda i: abs(values[i] - now)) if values else 0

    def place(self) -> int:
        """Return which of the scheduler's timesteps the call is for, also where two are equal or no step was made yet.

        `index` gives equal ones the first number, as random numbers are drawn by it.
        """
        known = any(getattr(self._scheduler, name, None) is not None for name in ("step_index", "begin_index"))
        place = None if known or self._timesteps is None else _place_of(self._timestep, self._timesteps)
        return self.index() if place is None else place

    def is_between(self, start_percent: float, end_percent: float) -> bool:
        """Return whether the call lies between two points of the noise schedule: 0 is pure noise, 1 the image."""
        percent, values = 0.0, self.schedule()
        if values:
            percent = 1.0 - values[min(self.index(), len(values) - 1)] / self._training_steps
        return start_percent <= percent < end_percent

    def limits(self, start_percent: float, end_percent: float) -> tuple[float, float]:
        """Return the timesteps of two points of the noise schedule, the lower one first."""
        return (1.0 - end_percent) * self._training_steps, (1.0 - start_percent) * self._training_steps

    @property
    def _training_steps(self) -> float:
        config: Any = getattr(self._scheduler, "config", {})
        return float(config.get("num_train_timesteps", 1000))

    def is_at(self, timestep: object) -> bool:
        """Return whether the call is for this timestep; waits for the device where the two were made apart."""
        here = self._timestep
        if here is timestep or (isinstance(here, torch.Tensor) and _is_same_place(here, timestep)):
            return True
        return None not in (here, timestep) and _number(here) == _number(timestep)

    def schedule(self) -> list[float]:
        """Return the scheduler's timesteps; none without a scheduler. Read once for each run, which waits for them."""
        if not self._values and self._timesteps is not None:
            self._values = [float(value) for value in self._timesteps.tolist()]
        return self._values


def _number(timestep: Any) -> float:
    """Return a timestep's value, which waits for the device."""
    return float(timestep.flatten()[0] if isinstance(timestep, torch.Tensor) else timestep)


def _is_same_place(one: torch.Tensor, other: object) -> bool:
    """Return whether two tensors begin at the same place of one memory. Nothing is read."""
    if not isinstance(other, torch.Tensor) or one.storage_offset() != other.storage_offset():
        return False
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def _place_of(timestep: object, timesteps: torch.Tensor) -> int | None:
    """Return which element of ``timesteps`` a view of one is; None for other tensors. Nothing is read."""
    if not isinstance(timestep, torch.Tensor) or timestep.dtype != timesteps.dtype or not timesteps.is_contiguous():
        return None
    if timestep.untyped_storage().data_ptr() != timesteps.untyped_storage().data_ptr() or any(timestep.stride()):
        return None
    place = int(timestep.storage_offset()) - int(timesteps.storage_offset())
    return place if 0 <= place < timesteps.numel() else None
