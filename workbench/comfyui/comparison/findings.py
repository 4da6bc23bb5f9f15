"""What a comparison found: times and pictures become evidence, and evidence a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ....core.activity import Summary
from ....optimizers.hosts.comfyui.method_proxy import stack_on
from ....optimizers.hosts.comfyui.model import stack_of
from ...measurement.evidence import Evidence, FewerSteps
from ...measurement.fewer_steps import Control
from ...measurement.picture import spread
from ...measurement.quality import Distance, average, compare_pictures, distances, farthest
from ...measurement.speedup import Speedup, measure_speedup
from ...measurement.verdict import Verdict, judge
from ..report_text import report_text
from ..sampling import Sampled, SamplingJob
from .pictures import Pairs, Pictures, decoded
from .rounds import ComparisonSettings, Side, TimedRun
from .sounds import Sounds

MOST_SHOWN = 16


@dataclass(frozen=True)
class Comparison:
    """What a comparison found.

    Attributes:
        unit: what the speed-up is of: ``step``, ``sampling`` (a single step, or steps that differ), ``decode`` or
            ``picture`` (both).
        from_preview: whether the pictures are rough previews, because no VAE was given.
        distances: of each picture.
        latent_change: norm of the latents' difference relative to the baseline's, over all seeds.
        reports: the Optimization Report of both sides.
        activity: of each technique of the optimized side, by its title.
        notes: what could not be measured, and why.
    """

    job: SamplingJob
    settings: ComparisonSettings
    unit: str
    baseline: list[TimedRun]
    optimized: list[TimedRun]
    pictures: Pictures
    distances: list[Distance]
    sounds: Sounds | None
    from_preview: bool
    latent_change: float
    evidence: Evidence
    verdict: Verdict
    reports: dict[str, str]
    activity: dict[str, Summary]
    notes: tuple[str, ...]

    @property
    def worst_run(self) -> int | None:
        """The number of the round, from 1, that the picture is of; None if there was one round."""
        rounds = len(self.baseline)
        return None if rounds == 1 else 1 + self.evidence.worst * rounds // len(self.distances)

    @property
    def shown(self) -> list[int]:
        """The indices of the pictures that are written and shown: the worst first, of a video some in their order."""
        if self.evidence.frames > 1:
            return spread(self.evidence.count, MOST_SHOWN, self.evidence.worst)
        return sorted(range(len(self.distances)), key=lambda index: -self.distances[index].rmse)[:MOST_SHOWN]


def evaluate(
    job: SamplingJob,
    settings: ComparisonSettings,
    pairs: Pairs,
    again: Sequence[Sampled],
    sounds: Sounds | None,
    notes: list[str],
    control: Control[list[Sampled]] | None = None,
) -> Comparison:
    """Turn what the runs gave into distances and a verdict.

    The baseline has drawn its first seeds ``again``. ``notes`` tell what could not be measured so far.
    """
    baseline, optimized = pairs.baseline, pairs.optimized

    def drawn(outputs: Sequence[Sampled]) -> Tensor:
        return torch.cat([decoded(baseline.side, output).pictures for output in outputs])

    unit, speedup = speedup_of(baseline.runs, optimized.runs)
    pictures = pairs.pictures(None if control is None else drawn(control.output))
    fewer_steps = repeat = None
    if control is not None and pictures.fewer_steps is not None:
        difference = compare_pictures(pictures.fewer_steps, pictures.baseline)
        fewer_steps = FewerSteps(control.steps, job.steps, control.seconds, difference)
    if again:
        images = drawn(again)
        repeat = max(distances(images, pictures.baseline[: len(images)]), key=lambda one: one.rmse)
    evidence = Evidence(
        speedup=speedup,
        difference=average(pairs.distances),
        same_bits=pairs.same_bits,
        seed=pairs.seed_change(),
        repeat=repeat,
        broken=pairs.broken or ("" if sounds is None else sounds.broken),
        fewer_steps=fewer_steps,
        farthest=farthest(pictures.optimized, pictures.baseline, pairs.distances),
        count=len(pictures.baseline),
        frames=pairs.frames,
        sound=None if sounds is None else sounds.distance,
    )
    side = optimized.side
    techniques = [*stack_of(side.model).techniques, *stack_on(side.vae).techniques]
    sound_only = sounds is not None and baseline.outputs[0].sound is None
    from_preview = baseline.side.vae is None and not sound_only
    if from_preview:
        notes = [*notes, "no VAE: pictures and distances are of rough previews of the latent"]
    if baseline.side.vae is None and sound_only:
        notes = [*notes, "pictures are spectrograms of the sound"]
    if sounds is not None and sounds.rate is None:
        notes = [*notes, "no audio_vae: the distance of the sound is of its latent"]
    return Comparison(
        job=job,
        settings=settings,
        unit=unit,
        baseline=baseline.runs,
        optimized=optimized.runs,
        pictures=pictures,
        distances=pairs.distances,
        sounds=sounds,
        from_preview=from_preview,
        latent_change=_latent_change(baseline.outputs, optimized.outputs),
        evidence=evidence,
        verdict=judge(evidence),
        reports={"baseline": _report(baseline.side), "optimized": _report(optimized.side)},
        activity={technique.title: technique.last_summary() for technique in techniques},
        notes=tuple(notes),
    )


def speedup_of(baseline: list[TimedRun], optimized: list[TimedRun]) -> tuple[str, Speedup]:
    """Return what the headline's speed-up is of, and the speed-up."""
    both = [*baseline, *optimized]
    if all(run.decode_seconds is None for run in both):
        unit = "step" if all(run.step_seconds for run in both) else "sampling"
    else:
        unit = "decode" if all(run.sampling_seconds is None for run in both) else "picture"
    return unit, measure_speedup([seconds(run, unit) for run in baseline], [seconds(run, unit) for run in optimized])


def seconds(run: TimedRun, unit: str) -> float:
    """Return what a run took in the unit of the headline."""
    if unit == "step":
        return run.step_seconds or 0.0
    return (run.sampling_seconds or 0.0) + (run.decode_seconds or 0.0)


def _latent_change(baseline: Sequence[Sampled], optimized: Sequence[Sampled]) -> float:
    before, after = (torch.cat([output.latent for output in side]).double() for side in (baseline, optimized))
    change = (after - before).norm()
    return float(change / before.norm()) if before.any() else float(change)


def _report(side: Side) -> str:
    # A VAE without techniques has nothing to report, and may be an object of another pack.
    return report_text(side.model, side.vae if stack_on(side.vae).techniques else None)
