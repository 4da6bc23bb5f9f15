"""Where the time of a run goes in ComfyUI: every step on the clock, then one more of them under torch's profiler."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import torch

from ...core.devices import synchronize
from ...core.errors import InvalidSetting
from ...core.phrases import phrase
from ...core.shared import Shared
from ...optimizers.hosts.comfyui.runtime.stack import stack_of
from ...optimizers.hosts.comfyui.structure.protocols import VAE, Executor, ModelPatcher
from ...optimizers.hosts.comfyui.weights.moves import WeightMoves, in_place_of, weight_moves
from ..measurement.profile import Operation, operations_of, slices_of
from .latents import decode
from .long_running import stop_if_cancelled
from .sampling import SamplingJob


@dataclass(frozen=True)
class Profile:
    """Where the time went, in seconds.

    ``loading`` is all before the first step, also compiling and first allocations; ``step`` is the median step, which
    ``slices`` are parts of: see :data:`..measurement.profile.SLICES`; ``weights`` is how they were moved.
    """

    loading: float
    steps: tuple[float, ...]
    decoding: float | None
    step: float
    slices: dict[str, float]
    weights: WeightMoves

    @property
    def seconds(self) -> float:
        return self.loading + sum(self.steps) + (self.decoding or 0.0)

    @property
    def shares(self) -> dict[str, float]:
        return {name: seconds / self.step for name, seconds in self.slices.items()}


class WeightWatch(Shared):
    """Times what ComfyUI does before each of two runs of ``model``, a clone of the MODEL that it was given."""

    def __init__(self, patcher: ModelPatcher) -> None:
        from comfy.patcher_extension import WrappersMP

        self.model = patcher.clone()
        self.model.add_wrapper_with_key(WrappersMP.PREPARE_SAMPLING, "paceline_weights", self._prepare)
        self._seconds: list[float] = []
        self._others: tuple[str, ...] = ()

    def _prepare(self, executor: Executor, *args: Any, **kwargs: Any) -> Any:
        device = torch.device(self.model.load_device)
        self._others = in_place_of(self.model)
        synchronize(device)
        started = time.perf_counter()
        result = executor(*args, **kwargs)
        synchronize(device)
        self._seconds.append(time.perf_counter() - started)
        return result

    def found(self) -> WeightMoves:
        """Return what was seen in the two runs."""
        first, again = (*self._seconds, 0.0)[:2]
        return weight_moves(self.model, stack_of(self.model).techniques, first, again, self._others)


class _Enough(Exception):
    """Ends a run after the step that was profiled."""


def profile_job(model: ModelPatcher, vae: VAE | None, job: SamplingJob, say: Callable[[str], None]) -> Profile:
    """Sample once with a clock, decode if there is a VAE, and sample again up to the end of one profiled step.

    `InvalidSetting` if the settings leave no step.
    """
    device, clock = torch.device(model.load_device), time.perf_counter
    ends: list[float] = []

    def on_step() -> None:
        stop_if_cancelled()
        synchronize(device)  # each step for itself, as the profiled one is
        ends.append(clock())

    watch = WeightWatch(model)
    model = watch.model
    say(phrase("every step on the clock"))
    synchronize(device)
    started = clock()
    sampled = job.sample(model, 0, clock, on_step)
    if not ends:
        remedy = "Give a denoise of more than 0, or more steps."
        raise InvalidSetting("No step was sampled, so there is nothing to measure.", remedy)
    steps = [end - begin for begin, end in zip(ends, ends[1:], strict=False)] or [ends[0] - started]
    typical = statistics.median(steps)
    loading = max(0.0, ends[0] - started - typical)
    decoding = None if vae is None else _decoding(vae, sampled.latent, device)
    say(phrase("one step under the profiler"))
    operations, kernels = _profiled(model, job, device)
    slices = slices_of(operations, kernels, typical)
    clocked = (ends[0] - started - loading, *steps[: len(ends) - 1])
    return Profile(loading, clocked, decoding, typical, slices, watch.found())


def _decoding(vae: VAE, latent: torch.Tensor, device: torch.device) -> float:
    synchronize(device)
    started = time.perf_counter()
    decode(vae, latent)
    synchronize(device)
    return time.perf_counter() - started


def _profiled(model: ModelPatcher, job: SamplingJob, device: torch.device) -> tuple[list[Operation], dict[str, float]]:
    """Return the operations and kernels of the second step, or of the whole run where there is one step only."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    # Frames of Python are in the profile only if it is verbose; they tell whose code has started an operator.
    verbose = torch._C._profiler._ExperimentalConfig(verbose=True)
    profiler = torch.profiler.profile(activities=activities, with_stack=True, experimental_config=verbose)
    done = 0

    def start() -> None:
        running.enter_context(profiler)
        running.callback(synchronize, device)

    def on_step() -> None:
        nonlocal done
        stop_if_cancelled()
        done += 1
        if done == 1 and job.steps > 1:
            start()
        elif done == min(2, job.steps):
            raise _Enough

    with suppress(_Enough), ExitStack() as running:  # a run that ends before it is started has nothing to stop
        if job.steps == 1:
            start()
        job.sample(model, 0, time.perf_counter, on_step)
    return operations_of(profiler.events())
