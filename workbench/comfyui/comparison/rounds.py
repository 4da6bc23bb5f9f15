"""The runs of a comparison: which side runs when, what each run took, and which outputs are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from ....core.devices import synchronize
from ....core.errors import require_integer
from ....core.phrases import phrase
from ....optimizers.hosts.comfyui.protocols import VAE, ModelPatcher
from ...measurement.memory import PeakMemory
from ...measurement.steps import Clock
from ...measurement.timing import MOST_ROUNDS, interleaved
from ..device_memory import beside_the_allocator
from ..latents import decode
from ..sampling import Sampled, SamplingJob


class Job(Protocol):
    """What is sampled: a `SamplingJob`, or a workflow's own nodes (``workflow_job.py``)."""

    @property
    def steps(self) -> int: ...

    def sample(self, model: ModelPatcher, seed: int, clock: Clock, on_step: Callable[[], None]) -> Sampled:
        """Sample once; ``seed`` is counted from the job's own, 0."""
        ...

    def settings(self) -> dict[str, Any]:
        """Return what was sampled, for the record; called after it was."""
        ...

    def carriers(self) -> list[Any]:
        """Return objects beside the model that can carry techniques."""
        ...


@dataclass(frozen=True)
class ComparisonSettings:
    """How a comparison is made.

    Attributes:
        runs: timed runs of each side. From two on there is a confidence interval.
        warmup_runs: runs of each side before, which are not timed: loading, compiling, first allocations.
        fp32_reference: also draw the baseline in fp32 once, to see what rounding alone does.
        fewer_steps: where the optimized side is faster and draws another picture, also draw the baseline with as many
            steps as fit into the same time.
    """

    runs: int = 3
    warmup_runs: int = 1
    fp32_reference: bool = False
    fewer_steps: bool = True

    def __post_init__(self) -> None:
        require_integer("runs", self.runs, 1, MOST_ROUNDS)
        require_integer("warmup_runs", self.warmup_runs, 0, MOST_ROUNDS)


@dataclass(frozen=True)
class Side:
    """One side of the comparison, with what it is called in the texts.

    Without a ``vae`` it shows ComfyUI's rough preview, or spectrograms if there is an ``audio_vae``, which decodes the
    sound. ``own`` is what it samples where that is another job.
    """

    title: str
    model: ModelPatcher
    vae: VAE | None = None
    own: Job | None = None
    audio_vae: VAE | None = None


@dataclass(frozen=True)
class Output:
    """What one run gave: the latent, that of its sound if it has one, and what was decoded if it was timed."""

    latent: Tensor
    sound: Tensor | None = None
    images: Tensor | None = None

    def equals(self, other: Output) -> bool:
        parts = ((self.latent, other.latent), (self.sound, other.sound), (self.images, other.images))
        return all(one is None or two is None or torch.equal(one, two) for one, two in parts)


@dataclass(frozen=True)
class TimedRun:
    """What one timed run took; None for a part that is not compared or cannot be measured here.

    ``sampling_seconds`` may include loading the model; ``step_seconds`` is the mean of all steps but the first; the
    bytes are those of :class:`PeakMemory`.
    """

    sampling_seconds: float | None
    step_seconds: float | None
    decode_seconds: float | None
    device_bytes: int | None
    process_bytes: int | None


@dataclass
class SideRuns:
    """All timed runs of one side, and its different outputs by the number, from 1, of the first run that gave each."""

    side: Side
    runs: list[TimedRun] = field(default_factory=list)
    outputs: dict[int, Output] = field(default_factory=dict)

    def add(self, run: TimedRun, output: Output) -> None:
        """Add one timed run; an output that repeats an earlier one is not kept."""
        self.runs.append(run)
        if not any(output.equals(earlier) for earlier in self.outputs.values()):
            self.outputs[len(self.runs)] = output


@dataclass
class Rounds:
    """Runs both sides in turn.

    Attributes:
        compares_sampling: if not, the baseline's latent is made once and shared.
        compares_decoding: if not, decoding is left to the end and is not timed.
        on_step: called after each step and each decoding; whatever it raises ends the comparison.
    """

    job: Job
    compares_sampling: bool
    compares_decoding: bool
    clock: Clock
    on_step: Callable[[], None]
    say: Callable[[str], None]
    _shared: dict[int, Output] = field(default_factory=dict)

    def warm_up(self, sides: tuple[Side, Side], runs: int) -> Output:
        """Run each side before anything is timed, and return what the baseline, the first side, draws from other seeds.

        The warm-up is made with other seeds, so this part of the noise floor costs nothing extra.
        """
        other: Output | None = None
        for number in range(max(1, runs)):
            for side in sides if runs else sides[:1]:
                warming = phrase("warm-up {number} of {total}: {side}", number=number + 1, total=runs, side=side.title)
                self.say(warming if runs else phrase("another seed"))
                _, output = self._run(side, 1 + number)
                other = other or output
        assert other is not None, "the baseline has run"
        return other

    def measure(self, sides: tuple[Side, Side], rounds: int) -> tuple[SideRuns, SideRuns]:
        """Run every side once in each round, and return what came of it, in the order of ``sides``."""
        found = {side.title: SideRuns(side) for side in sides}
        for number in range(rounds):
            for side in interleaved(sides, number):
                self.say(phrase("round {number} of {total}: {side}", number=number + 1, total=rounds, side=side.title))
                run, output = self._run(side, 0)
                found[side.title].add(run, output)
        baseline, optimized = (found[side.title] for side in sides)
        return baseline, optimized

    def draw(self, model: ModelPatcher, steps: int | None = None) -> tuple[float, Output]:
        """Sample once with another model, or another number of steps; return the seconds too."""
        job = replace(self.job, steps=steps) if steps and isinstance(self.job, SamplingJob) else self.job
        sampled = job.sample(model, 0, self.clock, self.on_step)
        return sampled.seconds, _output(sampled)

    def _run(self, side: Side, seed: int) -> tuple[TimedRun, Output]:
        device = torch.device(side.model.load_device)
        output = None if self.compares_sampling else self._shared_output(side, seed)
        sampling = step = decoding = None
        with PeakMemory(device, lambda: beside_the_allocator(side.model)) as memory:
            if output is None:
                sampled = (side.own or self.job).sample(side.model, seed, self.clock, self.on_step)
                output, sampling, step = _output(sampled), sampled.seconds, sampled.seconds_per_step
            if self.compares_decoding:
                assert side.vae is not None, "both sides have a VAE where decoding is compared"
                synchronize(device)
                started = self.clock()
                images = decode(side.vae, output.latent)
                synchronize(device)
                decoding, output = self.clock() - started, replace(output, images=images.cpu())
                self.on_step()
        return TimedRun(sampling, step, decoding, memory.device_bytes, memory.process_bytes), output

    def _shared_output(self, side: Side, seed: int) -> Output:
        if seed not in self._shared:
            self._shared[seed] = _output(self.job.sample(side.model, seed, self.clock, self.on_step))
        return self._shared[seed]


def _output(sampled: Sampled) -> Output:
    return Output(sampled.latent, sampled.sound)
