"""Where the time of a run goes in ComfyUI: every step on the clock, then one more of them under torch's profiler."""

from __future__ import annotations

import re
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import torch

from ...optimizers.core.devices import synchronize
from ...optimizers.core.errors import InvalidSetting
from ...optimizers.core.phrases import phrase
from ...optimizers.in_comfyui.second_weights.moves import missing_weights
from ...optimizers.in_comfyui.structure.protocols import VAE, ModelPatcher
from .machine import stop_if_cancelled
from .sampling_job import SamplingJob, timed_decode

SLICES = ("attention", "linear", "convolution", "norm_elementwise", "copies", "gaps")
"""The parts of a step. ``gaps``: the device waits for Python."""

# Parts of names of operators and kernels. A time belongs to the innermost operator that matches one of them.
_COMPUTES = (
    ("attention", ("attention", "flash", "fmha", "softmax", "bmm", "sage")),
    ("convolution", ("conv", "winograd", "implicit_gemm", "im2col")),
    ("linear", ("linear", "addmm", "aten::mm", "_mm", "matmul", "gemm", "cutlass", "cublas", "nvjet", "aten::dot")),
)
_COPIES = ("copy", "aten::to", "aten::cat", "clone", "contiguous", "memcpy", "memset", "pad", "aten::stack", "repeat")
_BOOKKEEPING = re.compile(
    r"aten::_?(view|t|transpose|as_strided_?|expand|reshape|permute|empty\w*|(un)?squeeze|slice|select|detach|alias|resize_|"
    r"unsafe_view|narrow|split\w*|chunk|unbind|unflatten|flatten|movedim|resolve_\w+|result_type|is_\w+|item|local_scalar_dense)"
)


@dataclass(frozen=True)
class Operation:
    """One operator of a profile.

    ``seconds`` are on the processor, without those of the operators that it calls; ``callers`` are the operators that
    led to it, the nearest first; ``kernels`` what it started on a device, with the seconds of each.
    """

    name: str
    seconds: float
    callers: tuple[str, ...] = ()
    kernels: tuple[tuple[str, float], ...] = ()


def operations_of(events: Sequence[Any]) -> tuple[list[Operation], dict[str, float]]:
    """Return the operators of ``torch.profiler.profile.events()``, and the seconds of all kernels by name."""
    operations: list[Operation] = []
    kernels: defaultdict[str, float] = defaultdict(float)
    for event in events:
        if event.device_type.name != "CPU":
            if not event.is_user_annotation:  # which spans kernels that have events of their own
                kernels[event.name] += event.device_time_total / 1e6
        else:
            started = tuple((kernel.name, kernel.duration / 1e6) for kernel in event.kernels)
            operations.append(Operation(event.name, event.self_cpu_time_total / 1e6, _callers(event), started))
    return operations, dict(kernels)


def slices_of(operations: Sequence[Operation], kernels: dict[str, float], seconds: float) -> dict[str, float]:
    """Return the seconds of each of ``SLICES``, which add up to those that a step takes without the profiler.

    ``kernels`` are the seconds of all that ran on a device, by name; empty on a processor.
    """
    found: defaultdict[str, float] = defaultdict(float)
    rest = defaultdict(float, kernels)
    for operation in operations:
        for name, duration in operation.kernels:
            found[_kind(operation, name)] += duration
            rest[name] -= duration
        if not kernels:
            found[_kind(operation)] += operation.seconds
    for name, duration in rest.items():  # of a recorded graph, whose kernels no operator has started
        if duration > 1e-9:
            found[_kind(Operation(name, 0.0))] += duration
    found.pop("gaps", None)  # part of what is left
    busy = sum(found.values())
    # A profiler makes operators slower: more than the whole step cannot have been busy.
    scale = min(1.0, seconds / busy) if busy else 1.0
    times = {name: found[name] * scale for name in SLICES[:-1]}
    return {**times, "gaps": max(0.0, seconds - sum(times.values()))}


def _kind(operation: Operation, kernel: str = "") -> str:
    names = [name.lower() for name in (operation.name, *operation.callers, kernel)]
    kinds = (kind for name in names for kind, parts in _COMPUTES if any(part in name for part in parts))
    return next(kinds, None) or _other(operation.name, kernel)


def _other(name: str, kernel: str) -> str:
    if any(part in text.lower() for text in (name, kernel) for part in _COPIES):
        return "copies"
    return "gaps" if not kernel and _BOOKKEEPING.fullmatch(name) else "norm_elementwise"


def _callers(event: Any) -> tuple[str, ...]:
    names, parent = [], event.cpu_parent
    while parent is not None:
        names.append(parent.name)
        parent = parent.cpu_parent
    return tuple(names)


@dataclass(frozen=True)
class Profile:
    """Where the time went, in seconds.

    ``loading`` is all before the first step, also compiling and first allocations; ``step`` is the median step, which
    ``slices`` are parts of: see `SLICES`; ``weights`` says how many of them are moved in each step.
    """

    loading: float
    steps: tuple[float, ...]
    decoding: float | None
    step: float
    slices: dict[str, float]
    weights: tuple[str, ...]

    @property
    def shares(self) -> dict[str, float]:
        return {name: seconds / self.step for name, seconds in self.slices.items()}


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
    decoding = None if vae is None else timed_decode(vae, sampled.latent, device, clock)[1]
    say(phrase("one step under the profiler"))
    operations, kernels = _profiled(model, job, device)
    slices = slices_of(operations, kernels, typical)
    clocked = (ends[0] - started - loading, *steps[: len(ends) - 1])
    return Profile(loading, clocked, decoding, typical, slices, missing_weights(model))


def _profiled(model: ModelPatcher, job: SamplingJob, device: torch.device) -> tuple[list[Operation], dict[str, float]]:
    """Return the operations and kernels of the second step, or of the whole run where there is one step only."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    profiler = torch.profiler.profile(activities=activities)
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
