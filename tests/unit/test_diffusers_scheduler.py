"""ScheduleOnCPU: no step asks the device for a number."""

from __future__ import annotations

from typing import Any

import diffusers
import pytest
import torch
from paceline import ScheduleOnCPU, optimize
from random_pipelines import small

# They look up their tables with the timestep, at the first step or at every one.
SCHEDULERS = (
    "DDIMScheduler", "DDPMScheduler", "PNDMScheduler", "LCMScheduler", "EulerDiscreteScheduler",
    "EulerAncestralDiscreteScheduler", "DPMSolverMultistepScheduler", "UniPCMultistepScheduler",
)  # fmt: skip
_READS = {"item", "tolist", "nonzero", "cpu", "numpy", "__bool__", "__int__", "__float__", "__index__", "__array__"}


class OnDevice(torch.Tensor):
    """A CPU tensor that stands for one on a GPU: what is made from it is one too, and reading it is noted.

    Moving it with ``to("cpu")`` gives a plain tensor, which may be read.
    """

    reads: list[str] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name == "to" and "cpu" in (*map(str, args[1:]), str((kwargs or {}).get("device"))):
            return args[0].as_subclass(torch.Tensor)
        if name in _READS:
            cls.reads.append(name)
        if name == "__getitem__" and not isinstance(args[0], cls):
            cls.reads.append("a table of the CPU, at a place that the device knows")
        return super().__torch_function__(func, types, args, kwargs or {})


def reads(name: str, on_cpu: bool) -> list[str]:
    """What is read from the device in the steps of a scheduler whose timesteps were asked for there."""
    pipe = small("sd15").pipe
    scheduler = getattr(diffusers, name).from_config(pipe.scheduler.config)
    pipe.scheduler = scheduler
    made = type(scheduler).set_timesteps

    class WithDevice(type(scheduler)):  # type: ignore[misc]
        def set_timesteps(self, *args: Any, **kwargs: Any) -> None:
            made(self, *args, **kwargs)
            self.timesteps = self.timesteps.as_subclass(OnDevice)

    scheduler.__class__ = WithDevice
    if on_cpu:
        optimize(pipe, ScheduleOnCPU())
    scheduler.set_timesteps(4)
    OnDevice.reads = []
    sample = torch.randn(1, 4, 8, 8).as_subclass(OnDevice)
    for timestep in scheduler.timesteps:
        sample = scheduler.step(sample * 0.5, timestep, sample).prev_sample
    return OnDevice.reads


@pytest.mark.parametrize("name", SCHEDULERS)
def test_steps_wait_for_the_device_only_without_it(name: str) -> None:
    assert reads(name, on_cpu=False) and not reads(name, on_cpu=True)
