"""One sampling run: what is known of it, and what techniques keep for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from .....core.shared import Shared
from ....guard import Guard
from ..structure.protocols import Options

RUN = "paceline_run"
"""Transformer option with the :class:`SamplingRun`. No network sees it."""

Now = Callable[[], tuple[float, Hashable]]
"""Says where an evaluation stands; that can wait for the GPU."""


@dataclass(frozen=True)
class SamplerCall:
    """What a sampler is given; ``options`` are the run's own.

    ``latent`` is kept where ``mask`` is 0; ``cleanup`` is undone when the sampler has ended, or begins again.
    """

    sampler: Any
    guider: Any
    options: Options
    noise: Tensor
    latent: Any
    mask: Tensor | None
    cleanup: ExitStack = field(default_factory=ExitStack)


class SamplingRun(Shared):
    """One sampling run. No ``dict``: ComfyUI copies those wherever it finds them in its options.

    The noise levels are known without asking the GPU in each step, which would wait for it.

    Attributes:
        guider: of the run; None where ComfyUI has not said that it began.
        guard: watches its evaluations where techniques approximate.
        whole: whether the next prediction is made of a full step, where something else than the schedule says so.
        followed: whether the sampler reports each step when it is done, and calls nothing between two.
        done: steps the sampler has reported; 0 where it is not followed.
        limits: noise levels, by model and percentage of the schedule.
        kept: what techniques keep until the sampler has ended, by their kind.
    """

    def __init__(self, guider: Any = None) -> None:
        self.guider = guider
        self.guard: Guard | None = None
        self.whole: bool | None = None
        self.begin(None)

    def begin(self, sigmas: Tensor | None) -> None:
        """Begin with a sampler, or again because its steps were spoiled: nothing of them is left."""
        self._sigmas, self._levels = sigmas, list[float]()
        self.followed, self.done = False, 0
        self.limits: dict[tuple[int, float], float] = {}
        self.kept: dict[str, Any] = {}

    @property
    def levels(self) -> list[float]:
        """The noise levels of the schedule, read from the device when they are asked for first."""
        if not self._levels and self._sigmas is not None:
            self._levels = self._sigmas.tolist()
        return self._levels

    def counting(self, callback: Callable[..., object] | None) -> Callable[..., None]:
        """Return the sampler's ``callback`` that also counts its steps."""

        def count(step: int, *rest: object) -> None:
            self.done = step + 1
            if callback is not None:
                callback(step, *rest)

        return count

    def noise_level(self, given: Tensor) -> float:
        """Return the noise level of a call that was given it as ``[batch]``.

        In the first step it is read, with the schedule: nothing else is at work then, and some samplers move the first
        noise level.
        """
        levels = self.levels
        return levels[self.done] if 0 < self.done < len(levels) else float(given.flatten()[0])

    def stands_at(self, guider: object, timestep: Tensor) -> tuple[float, Hashable]:
        """Return the noise level of an evaluation of a guider, and what takes part in it."""
        sigma = self.noise_level(timestep)
        return sigma, tuple(taking_part(getattr(guider, "conds", {}), sigma))


def run_of(model_options: Options) -> SamplingRun:
    """Return the run that a guider's or sampler's ``model_options`` belong to."""
    run: SamplingRun = model_options.setdefault("transformer_options", {}).setdefault(RUN, SamplingRun())
    return run


def taking_part(conds: dict[str, list[dict[str, Any]]], sigma: float) -> Iterator[Hashable]:
    """Yield what is active at a noise level: conditionings with a range, ControlNets, keyframes of hooks."""
    for name, entries in conds.items():
        for number, entry in enumerate(entries or ()):
            start, end = entry.get("timestep_start"), entry.get("timestep_end")
            if (start is not None and sigma > start) or (end is not None and sigma < end):
                continue
            yield (name, number)
            control = entry.get("control")
            while control is not None:
                first, last = control.timestep_range or (float("inf"), 0.0)
                yield (id(control), first >= sigma >= last)
                control = control.previous_controlnet
            for hook in getattr(entry.get("hooks"), "hooks", ()):
                frames = getattr(hook.hook_keyframe, "keyframes", ())
                yield (id(hook), sum(frame.start_t >= sigma for frame in frames))
