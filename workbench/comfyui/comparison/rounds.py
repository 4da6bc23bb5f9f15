"""The runs of a comparison: which side runs when, what each run took, and which outputs are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch

from ....core.devices import synchronize
from ....core.errors import require_integer
from ....core.phrases import phrase
from ....optimizers.hosts.comfyui.model import stack_of
from ....optimizers.hosts.comfyui.protocols import VAE, ModelPatcher
from ...measurement.memory import PeakMemory
from ...measurement.speedup import MOST_ROUNDS, interleaved
from ...measurement.steps import Clock
from ..latents import Decoded, decode
from ..machine import beside_the_allocator
from ..sampling import Sampled, SamplingJob

T = TypeVar("T")


@dataclass(frozen=True)
class ComparisonSettings:
    """How a comparison is made.

    Attributes:
        runs: timed runs of each side, each from another seed. From two on there is a confidence interval.
        warmup_runs: runs of each side before, which are not timed: loading, compiling, first allocations.
        fewer_steps: where the optimized side is faster and draws another picture, also draw the baseline with as many
            steps as fit into the same time.
        most_runs: where speed or picture are not clear after ``runs``, up to so many are made; 0 for no more.
    """

    runs: int = 3
    warmup_runs: int = 1
    fewer_steps: bool = True
    most_runs: int = 0

    def __post_init__(self) -> None:
        require_integer("runs", self.runs, 1, MOST_ROUNDS)
        require_integer("warmup_runs", self.warmup_runs, 0, MOST_ROUNDS)
        require_integer("most_runs", self.most_runs, 0, MOST_ROUNDS)

    def rounds(self, prompts: int = 1) -> tuple[int, int]:
        """Return how many rounds are made at least and at most; each of the ``prompts`` is drawn."""
        return max(self.runs, prompts), max(self.runs, self.most_runs, prompts)


@dataclass(frozen=True)
class Side:
    """One side of the comparison, with what it is called in the texts.

    Without a ``vae`` it shows ComfyUI's rough preview, or spectrograms if there is an ``audio_vae``, which decodes the
    sound.
    """

    title: str
    model: ModelPatcher
    vae: VAE | None = None
    audio_vae: VAE | None = None


@dataclass(frozen=True)
class TimedRun:
    """What one timed run took; None for a part that is not compared or cannot be measured here.

    ``sampling_seconds`` may include loading the model; ``step_seconds`` is the mean of all steps but the first, None
    where a technique makes the first ones longer than others; the bytes are those of :class:`PeakMemory`.
    """

    sampling_seconds: float | None
    step_seconds: float | None
    decode_seconds: float | None
    device_bytes: int | None
    process_bytes: int | None


@dataclass
class SideRuns:
    """All timed runs of one side and what each gave; the number of a round is its seed, counted from the job's own."""

    side: Side
    runs: list[TimedRun] = field(default_factory=list)
    outputs: list[Sampled] = field(default_factory=list)


@dataclass
class Rounds:
    """Runs both sides in turn.

    Attributes:
        compares_sampling: if not, the baseline's latent is made once and shared.
        compares_decoding: if not, decoding is left to the end and is not timed.
        on_step: called after each step and each decoding; whatever it raises ends the comparison.
    """

    job: SamplingJob
    compares_sampling: bool
    compares_decoding: bool
    clock: Clock
    on_step: Callable[[], None]
    say: Callable[[str], None]
    _shared: dict[int, Sampled] = field(default_factory=dict)

    def warm_up(self, sides: Sequence[SideRuns], runs: int) -> list[Sampled]:
        """Run each side before anything is timed, and return what the baseline, the first side, draws.

        Its seeds are others than those of the rounds: the pictures belong to the noise floor.
        """
        drawn = []
        for number in range(max(1, runs)):
            for one in sides if runs else sides[:1]:
                title = one.side.title
                warming = phrase("warm-up {number} of {total}: {side}", number=number + 1, total=runs, side=title)
                self.say(warming if runs else phrase("another seed"))
                _, output = self._run(one.side, MOST_ROUNDS + number)
                if one is sides[0]:
                    drawn.append(output)
        return drawn

    def measure(self, sides: Sequence[SideRuns], least: int, most: int, clear: Callable[[], bool]) -> None:
        """Run every side once in each round, from its own seed: ``least`` rounds, and up to ``most`` until clear."""
        for number in range(most):
            if number >= least and clear():
                return
            for one in interleaved(sides, number):
                about: dict[str, str | float] = {"number": number + 1, "total": most, "side": one.side.title}
                at_most = phrase("round {number} of at most {total}: {side}", **about)
                self.say(at_most if most > least else phrase("round {number} of {total}: {side}", **about))
                run, output = self._run(one.side, number)
                one.runs.append(run)
                one.outputs.append(output)

    def repeat(self, one: SideRuns) -> list[Sampled]:
        """Draw the first seed again, and the others too if that gives another picture."""
        again: list[Sampled] = []
        for number, output in enumerate(one.outputs):
            self.say(phrase("{side} again, from the same seed", side=one.side.title))
            again.append(self._run(one.side, number)[1])
            if again[-1].equals(output):
                break
        return again

    def draw(self, model: ModelPatcher, seed: int = 0, steps: int | None = None) -> Sampled:
        """Sample once with another model, or another number of steps."""
        job = replace(self.job, steps=steps) if steps else self.job
        return job.sample(model, seed, self.clock, self.on_step)

    def _run(self, side: Side, seed: int) -> tuple[TimedRun, Sampled]:
        device = torch.device(side.model.load_device)
        output = None if self.compares_sampling else self._shared_output(side, seed)
        sampling = step = decoding = None
        with PeakMemory(device, lambda: beside_the_allocator(side.model)) as memory:
            if output is None:
                output = self.job.sample(side.model, seed, self.clock, self.on_step)
                sampling = output.seconds
                uneven = any(technique.policy.uneven for technique in stack_of(side.model).techniques)
                step = None if uneven else output.seconds_per_step
            if self.compares_decoding:
                assert side.vae is not None, "both sides have a VAE where decoding is compared"
                synchronize(device)
                started = self.clock()
                images = decode(side.vae, output.latent)
                synchronize(device)
                decoding, output = self.clock() - started, replace(output, decoded=Decoded.of(images, exact=True))
                self.on_step()
        return TimedRun(sampling, step, decoding, memory.device_bytes, memory.process_bytes), output

    def _shared_output(self, side: Side, seed: int) -> Sampled:
        if seed not in self._shared:
            self._shared[seed] = self.job.sample(side.model, seed, self.clock, self.on_step)
        return self._shared[seed]


def by_prompt(rounds: Sequence[T], warmed: Sequence[T], prompts: int) -> list[list[T]]:
    """Return what was drawn with each prompt, each draw from a seed of its own; the seeds take the prompts in turn."""
    draws = [*enumerate(warmed, MOST_ROUNDS), *enumerate(rounds)]
    return [[one for seed, one in draws if seed % prompts == prompt] for prompt in range(prompts)]
