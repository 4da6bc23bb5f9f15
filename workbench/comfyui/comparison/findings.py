"""What a comparison found: times and pictures become evidence, and evidence a verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from ....core.activity import Summary
from ....optimizers.hosts.comfyui.method_proxy import stack_on
from ....optimizers.hosts.comfyui.model import stack_of
from ...measurement.evidence import Evidence, FewerSteps
from ...measurement.farthest import farthest
from ...measurement.lpips import load_lpips
from ...measurement.picture import spread
from ...measurement.quality import Distance, compare_pictures
from ...measurement.timing import Speedup, measure_speedup
from ...measurement.verdict import Verdict, judge
from ..report_text import report_text
from .fewer_steps import Control
from .pictures import Pictures
from .rounds import ComparisonSettings, Job, Side, SideRuns, TimedRun
from .sounds import Sounds

_MOST_SHOWN = 16


@dataclass(frozen=True)
class Comparison:
    """What a comparison found.

    Attributes:
        unit: what the speed-up is of: ``step``, ``sampling`` (a single step), ``decode`` or ``picture`` (both).
        from_preview: whether the pictures are rough previews, because no VAE was given.
        latent_change: norm of the latents' difference relative to the baseline's.
        reports: the Optimization Report of both sides.
        activity: of each technique of the optimized side, by its title.
        notes: what could not be measured, and why.
    """

    job: Job
    settings: ComparisonSettings
    unit: str
    baseline: list[TimedRun]
    optimized: list[TimedRun]
    pictures: Pictures
    sounds: Sounds | None
    from_preview: bool
    latent_change: float
    evidence: Evidence
    verdict: Verdict
    reports: dict[str, str]
    activity: dict[str, Summary]
    notes: tuple[str, ...]

    @property
    def farthest(self) -> int:
        """The index of the picture that is judged."""
        worst = self.evidence.farthest
        return 0 if worst is None else worst.picture - 1

    @property
    def shown(self) -> list[int]:
        """The indices of the pictures that are written and shown: of a long batch or video not all."""
        return spread(len(self.pictures.baseline), _MOST_SHOWN, self.farthest)


def evaluate(
    job: Job,
    settings: ComparisonSettings,
    baseline: SideRuns,
    optimized: SideRuns,
    pictures: Pictures,
    sounds: Sounds | None,
    notes: list[str],
    control: Control | None = None,
) -> Comparison:
    """Turn what the runs gave into distances and a verdict; `InvalidSetting` if the pictures differ in size.

    Of several runs the worst one counts. ``notes`` tell what could not be measured so far.
    """
    lpips, missing = load_lpips()

    def distance(images: Tensor) -> Distance:
        return compare_pictures(images, pictures.baseline, lpips)

    unit, speedup = speedup_of(baseline.runs, optimized.runs)
    before = farthest(pictures.baseline_runs, pictures.baseline, lpips)
    after = farthest(pictures.optimized_runs, pictures.baseline, lpips)
    pictures = replace(pictures, optimized=pictures.optimized_runs[after.run])
    fewer_steps = None
    if control is not None and pictures.fewer_steps is not None:
        fewer_steps = FewerSteps(control.steps, job.steps, control.seconds, distance(pictures.fewer_steps))
    evidence = Evidence(
        speedup=speedup,
        difference=after.distance,
        difference_run=after.run if len(pictures.optimized_runs) > 1 else None,
        farthest=after,
        difference_picture=after.picture if len(pictures.baseline) > 1 else None,
        same_bits=all(output.equals(baseline.outputs[1]) for output in optimized.outputs.values()),
        seed=distance(pictures.other_seed),
        repeat=before.alone if len(baseline.runs) > 1 else None,
        repeat_run=before.run,
        precision=None if pictures.fp32 is None else distance(pictures.fp32),
        broken=pictures.broken,
        frames=pictures.frames,
        videos=len(pictures.baseline) // pictures.frames,
        sound=None if sounds is None else sounds.distance,
        broken_sound="" if sounds is None else sounds.broken,
        fewer_steps=fewer_steps,
    )
    side = optimized.side
    objects = (side.vae, *(side.own.carriers() if side.own else ()))
    techniques = [*stack_of(side.model).techniques, *(one for given in objects for one in stack_on(given).techniques)]
    notes = [*notes, f"LPIPS: {missing}"] if missing else notes
    sound_only = sounds is not None and baseline.outputs[1].sound is None
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
        sounds=sounds,
        from_preview=from_preview,
        latent_change=_latent_change(baseline.outputs[1].latent, optimized.outputs[after.run].latent),
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


def _latent_change(baseline: Tensor, optimized: Tensor) -> float:
    before, after = baseline.double(), optimized.double()
    change = (after - before).norm()
    return float(change / before.norm()) if before.any() else float(change)


def _report(side: Side) -> str:
    # A VAE without techniques has nothing to report, and may be an object of another pack.
    return report_text(side.model, side.vae if stack_on(side.vae).techniques else None)
