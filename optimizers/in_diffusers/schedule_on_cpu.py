"""Keep a scheduler's timesteps on the CPU.

diffusers keeps most schedulers' timesteps on the model's device, and looks up tables with them at every step (DDIM,
DDPM, PNDM, LCM) or at the first (Euler and others): each time Python waits for the GPU. A UNet moves the timestep to
its own device again, which waits for nothing. UniPC still waits: diffusers 0.42 copies its noise levels to the GPU in
each step.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.activity import Activity, Summary
from ..core.not_copied import Function
from ..core.technique import Policy
from .components import SCHEDULER
from .host import Host
from .patches import Patches
from .pipeline_technique import PipelineTechnique


@dataclass(frozen=True)
class ScheduleOnCPU:
    """Keep the scheduler's timesteps on the CPU, so that no step waits for the GPU to read them. No settings."""


class ScheduleOnCPUPolicy(Policy):
    """What is said of timesteps on the CPU."""

    kind = "schedule"
    title = "Schedule on the CPU"

    def clauses(self) -> tuple[str, ...]:
        return ("timesteps stay on the CPU, so that no step waits for the GPU to read them",)

    def summarize(self, activity: Activity) -> Summary:
        count = activity.model_calls
        return Summary("active", f"{count} {'schedule' if count == 1 else 'schedules'} made on the CPU")


class PipelineScheduleOnCPU(PipelineTechnique):
    """Timesteps on the CPU, for one scheduler."""

    kind, title = ScheduleOnCPUPolicy.kind, ScheduleOnCPUPolicy.title
    roles = (SCHEDULER,)

    def attach(self, host: Host, patches: Patches) -> None:
        self.policy = ScheduleOnCPUPolicy()
        scheduler = host.component.part

        def on_cpu(made: Function) -> Function:
            def set_timesteps(*args: object, **kwargs: object) -> None:
                made(*args, **kwargs)
                scheduler.timesteps = scheduler.timesteps.to("cpu")

            return set_timesteps

        host.wrap_entries(on_cpu)
