"""The runs of a comparison: who runs when, what each run took, and which results are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ....core.devices import synchronize
from ...measurement import PeakMemory, interleaved
from .pictures import decode
from .sampling import Clock, SamplingJob, sample


@dataclass(frozen=True)
class Variant:
    """One side of the comparison.

    Attributes:
        title: what it is called in the texts.
        model: MODEL.
        vae: VAE, or None to look at ComfyUI's rough preview of the latent.
    """

    title: str
    model: Any
    vae: Any = None


@dataclass(frozen=True)
class Result:
    """What one run gave: the latent, and the decoded images ``[pictures, height, width, channels]`` if it decoded."""

    latent: Tensor
    images: Tensor | None = None

    def equals(self, other: Result) -> bool:
        """Say whether two results are equal bit for bit."""
        if self.images is not None and other.images is not None and not torch.equal(self.images, other.images):
            return False
        return torch.equal(self.latent, other.latent)


@dataclass(frozen=True)
class Run:
    """What one timed run took; None for a part that is not compared or cannot be measured here.

    Attributes:
        sampling_seconds: the whole sampling, which may include loading the model.
        step_seconds: mean of its steps but the first.
        decode_seconds: the VAE.
        device_bytes: see :class:`PeakMemory`; likewise ``process_bytes``.
    """

    sampling_seconds: float | None
    step_seconds: float | None
    decode_seconds: float | None
    device_bytes: int | None
    process_bytes: int | None


@dataclass
class Side:
    """What a variant gave over all rounds: its runs, the first result, and later ones that differ from it."""

    variant: Variant
    runs: list[Run] = field(default_factory=list)
    first: Result | None = None
    others: list[Result] = field(default_factory=list)

    def add(self, run: Run, result: Result) -> None:
        """Add one timed run; a result that repeats the first one is not kept."""
        self.runs.append(run)
        if self.first is None:
            self.first = result
        elif not result.equals(self.first):
            self.others.append(result)


class Rounds:
    """Runs both sides in turn.

    Args:
        job: what is sampled.
        compares_sampling: whether the models differ; otherwise the baseline's latent is made once and shared.
        compares_decoding: whether the VAEs differ; otherwise decoding is left to the end and is not timed.
        clock: returns seconds.
        on_step: called after each step and each decoding; whatever it raises ends the comparison.
        say: told what is going on.
    """

    def __init__(
        self,
        job: SamplingJob,
        compares_sampling: bool,
        compares_decoding: bool,
        clock: Clock,
        on_step: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._job = job
        self._compares_sampling, self._compares_decoding = compares_sampling, compares_decoding
        self._clock, self._on_step, self._say = clock, on_step, say
        self._shared: dict[int, Tensor] = {}

    def warm_up(self, variants: list[Variant], runs: int) -> Result:
        """Run each variant before anything is timed, and return what the baseline draws from another seed.

        The warm-up is made with that other seed, so this part of the noise floor costs nothing extra.
        """
        other: Result | None = None
        for number in range(max(1, runs)):
            for variant in variants if runs else variants[:1]:
                self._say(f"warm-up {number + 1} of {runs}: {variant.title}" if runs else "another seed")
                _, result = self.run(variant, self._job.seed + 1 + number)
                other = other or result
        assert other is not None, "the baseline has run"
        return other

    def measure(self, variants: list[Variant], rounds: int) -> list[Side]:
        """Run every variant once in each round."""
        sides = {variant.title: Side(variant) for variant in variants}
        for number in range(rounds):
            for variant in interleaved(variants, number):
                self._say(f"round {number + 1} of {rounds}: {variant.title}")
                sides[variant.title].add(*self.run(variant, self._job.seed))
        return list(sides.values())

    def run(self, variant: Variant, seed: int) -> tuple[Run, Result]:
        """Run a variant once."""
        device = torch.device(variant.model.load_device)
        latent = None if self._compares_sampling else self._shared_latent(variant, seed)
        sampling = step = decoding = None
        images = None
        with PeakMemory(device) as memory:
            if latent is None:
                sampled = sample(variant.model, self._job, seed, self._clock, self._on_step)
                latent, sampling, step = sampled.latent, sampled.seconds, sampled.seconds_per_step
            if self._compares_decoding:
                synchronize(device)
                started = self._clock()
                images = decode(variant.vae, latent)
                synchronize(device)
                decoding, images = self._clock() - started, images.cpu()
                self._on_step()
        return Run(sampling, step, decoding, memory.device_bytes, memory.process_bytes), Result(latent, images)

    def _shared_latent(self, variant: Variant, seed: int) -> Tensor:
        if seed not in self._shared:
            self._shared[seed] = sample(variant.model, self._job, seed, self._clock, self._on_step).latent
        return self._shared[seed]
