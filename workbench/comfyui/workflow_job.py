"""A workflow's own sampling as what is measured: its nodes run as they are, with another model among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ...core.devices import synchronize
from ...optimizers.hosts.comfyui.protocols import Executor, ModelPatcher
from ..measurement.steps import Clock, StepTimes
from .links import require_latent
from .prompt import Link, link_of
from .sampling import Sampled
from .segment import Segment

WIRE = "paceline_wire"
"""Stands in a segment for the node whose place the model (or ControlNet) under test takes."""


class StepWatch:
    """Times the steps of all samplers that run a MODEL which :meth:`on` has given out."""

    def __init__(self) -> None:
        self._new: Callable[[], StepTimes] | None = None
        self._times: list[StepTimes] = []

    def on(self, model: ModelPatcher) -> ModelPatcher:
        from comfy.patcher_extension import WrappersMP

        clone = model.clone()
        clone.add_wrapper_with_key(WrappersMP.OUTER_SAMPLE, "paceline_steps", self._outer_sample)
        return clone

    def begin(self, device: torch.device, clock: Clock) -> None:
        """Forget what was timed, and time on this device from here on."""
        self._new, self._times = lambda: StepTimes(device, clock), []

    @property
    def steps(self) -> int:
        return sum(times.steps for times in self._times)

    def mean(self) -> float | None:
        """Return the mean seconds of the steps but the first of each sampler; None without others."""
        timed = [(mean, times.steps - 1) for times in self._times if (mean := times.mean()) is not None]
        return sum(mean * count for mean, count in timed) / sum(count for _, count in timed) if timed else None

    def _outer_sample(
        self,
        executor: Executor,
        noise: object,
        latent: object,
        sampler: object,
        sigmas: object,
        mask: object = None,
        callback: Callable[..., object] | None = None,
        *args: object,
        **kwargs: object,
    ) -> Any:
        if self._new is None:
            return executor(noise, latent, sampler, sigmas, mask, callback, *args, **kwargs)
        times = self._new()
        self._times.append(times)

        def stepped(*about: object) -> None:
            times.step()
            if callback is not None:
                callback(*about)

        return executor(noise, latent, sampler, sigmas, mask, stepped, *args, **kwargs)


@dataclass(frozen=True)
class WorkflowJob:
    """What is sampled: the nodes of a workflow between a wire and a sampler, all with the workflow's own settings.

    Attributes:
        end: gives the LATENT.
        wired: nodes behind the wire; links to ``WIRE`` are given the MODEL, or ``control_net`` where there is one.
        drawn: further nodes that a seed decides: they run once for each.
        given: what the nodes outside have made.
        watch: times the steps; both sides' models have it.
        about: what the last run was, for the record.
    """

    end: Link
    wired: Segment
    drawn: Segment
    given: Mapping[Link, Any]
    watch: StepWatch
    control_net: Any = None
    about: dict[str, Any] = field(default_factory=dict)
    made: dict[int, dict[Link, Any]] = field(default_factory=dict)
    prompts: int = 1
    steps: int = 1
    """1, as the number of steps is unknown before the first run: progress is told once for each run."""

    def sample(self, model: ModelPatcher, seed: int, clock: Clock, on_step: Callable[[], None]) -> Sampled:
        """Run the nodes once, with ``seed`` added to the workflow's own."""
        device = torch.device(model.load_device)
        self.prepare(seed)
        wire = model if self.control_net is None else self.control_net
        synchronize(device)
        self.watch.begin(device, clock)
        started = clock()
        latent = self.wired.run([self.end], {**self.given, **self.made[seed], (WIRE, 0): wire}, seed)[self.end]
        synchronize(device)
        seconds = clock() - started
        require_latent("The sampler's result", latent)
        sampled = Sampled.of(latent["samples"], seconds, self.watch.mean())
        self.about.update(steps=self.watch.steps or 1, latent_shape=list(sampled.latent.shape))
        on_step()
        return sampled

    def prepare(self, seed: int) -> None:
        """Run the nodes that a seed decides and the wire does not."""
        if seed not in self.made:
            links = (link_of(value) for node in self.wired.nodes.values() for value in node["inputs"].values())
            needed = [link for link in (self.end, *links) if link is not None and link[0] in self.drawn.nodes]
            self.made[seed] = self.drawn.run(needed, self.given, seed)

    def settings(self) -> dict[str, Any]:
        return self.about

    def carriers(self) -> list[Any]:
        return [] if self.control_net is None else [self.control_net]
