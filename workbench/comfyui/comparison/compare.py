"""Compare an optimised MODEL or VAE with its baseline."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ....core.activity import Summary
from ....core.errors import InvalidSetting, require_integer
from ....optimizers.hosts.comfyui.model import require_model, stack_of
from ....optimizers.hosts.comfyui.report import report_text
from ....optimizers.hosts.comfyui.vae import stack_of_vae
from ...measurement import Distance, Evidence, Lpips, Speedup, Verdict, compare_pictures, judge, measure_speedup
from .lpips_weights import load_lpips
from .pictures import as_bytes, decode, preview, trouble
from .rounds import Result, Rounds, Run, Side, Variant
from .sampling import Clock, SamplingJob, sample

MOST_RUNS = 20


@dataclass(frozen=True)
class ComparisonSettings:
    """How a comparison is made.

    Attributes:
        runs: timed runs of each side. From two on there is a confidence interval.
        warmup_runs: runs of each side before, which are not timed: loading, compiling, first allocations.
        fp32_reference: also draw the baseline in fp32 once, to see what rounding alone does.
    """

    runs: int = 3
    warmup_runs: int = 1
    fp32_reference: bool = False

    def __post_init__(self) -> None:
        require_integer("runs", self.runs, 1, MOST_RUNS)
        require_integer("warmup_runs", self.warmup_runs, 0, MOST_RUNS)


Progress = Callable[[int], Callable[[], None]]


def node_progress(total: int) -> Callable[[], None]:
    """Return a function that moves the node's progress bar on by one, and stops if the user has cancelled."""
    import comfy.model_management
    import comfy.utils

    bar = comfy.utils.ProgressBar(total)

    def advance() -> None:
        comfy.model_management.throw_exception_if_processing_interrupted()
        bar.update(1)

    return advance


@dataclass(frozen=True)
class Comparison:
    """What a comparison found.

    Attributes:
        job: what was sampled.
        settings: how.
        unit: what the speed-up is of: ``step``, ``sampling`` (a single step), ``decode`` or ``picture`` (both).
        baseline: runs of the baseline; likewise ``optimized``.
        pictures: uint8 ``[pictures, height, width, 3]``: baseline, optimized, other_seed.
        from_preview: whether the pictures are rough previews, because no VAE was given.
        latent_change: norm of the latents' difference relative to the baseline's.
        evidence: times and distances.
        verdict: what they mean.
        reports: the Optimization Report of both sides.
        activity: what each technique of the optimised side did, by its title.
        notes: what could not be measured, and why.
    """

    job: SamplingJob
    settings: ComparisonSettings
    unit: str
    baseline: list[Run]
    optimized: list[Run]
    pictures: dict[str, Tensor]
    from_preview: bool
    latent_change: float
    evidence: Evidence
    verdict: Verdict
    reports: dict[str, str]
    activity: dict[str, Summary]
    notes: tuple[str, ...]


def compare(
    baseline: Variant,
    optimized: Variant,
    job: SamplingJob,
    settings: ComparisonSettings,
    say: Callable[[str], None] = lambda text: None,
    clock: Clock = time.perf_counter,
    progress: Progress = node_progress,
) -> Comparison:
    """Run both sides with the same seed and judge the difference.

    Args:
        baseline: what is compared with.
        optimized: what is judged. What it shares with the baseline, the model or the VAE, is not compared.
        job: what is sampled.
        settings: how often.
        say: told what is going on.
        clock: returns seconds.
        progress: given the number of steps to come, returns what is called after each of them.

    Raises:
        InvalidSetting: if their pictures differ in size, or a VAE has none to be compared with.
        UnsupportedModel: if there is neither a VAE nor a preview for the model's latents.
    """
    import comfy.model_management

    for variant in (baseline, optimized):
        require_model(variant.model)
    compares_decoding = optimized.vae is not baseline.vae
    compares_sampling = optimized.model is not baseline.model or not compares_decoding
    if compares_decoding and baseline.vae is None:
        raise InvalidSetting("vae_optimized has nothing to be compared with.", "Connect the untouched VAE to vae.")
    precise, why_not = _precise_model(baseline, settings.fp32_reference and compares_sampling)
    advance = progress(_steps(job, settings, compares_sampling, compares_decoding, precise is not None))
    variants = [baseline, optimized]
    rounds = Rounds(job, compares_sampling, compares_decoding, clock, advance, say)
    try:
        other_seed = rounds.warm_up(variants, settings.warmup_runs)
        ours, theirs = rounds.measure(variants, settings.runs)
        reference = None
        if precise is not None:
            say("baseline in fp32")
            reference = Result(sample(precise, job, job.seed, clock, advance).latent)
        say("comparing the pictures")
        return _evaluate(job, settings, ours, theirs, other_seed, reference, (why_not,) if why_not else ())
    finally:
        comfy.model_management.soft_empty_cache()


def _evaluate(
    job: SamplingJob,
    settings: ComparisonSettings,
    ours: Side,
    theirs: Side,
    other_seed: Result,
    precise: Result | None,
    notes: tuple[str, ...],
) -> Comparison:
    """Turn what the runs gave into distances and a verdict."""
    assert ours.first is not None and theirs.first is not None, "there is at least one round"
    lpips, missing = load_lpips()
    before, after = _images(ours.variant, ours.first), _images(theirs.variant, theirs.first)
    pictures = {
        "baseline": as_bytes(before),
        "optimized": as_bytes(after),
        "other_seed": as_bytes(_images(ours.variant, other_seed)),
    }
    # A run that equals the first one was not kept: its distance is that of the first to itself.
    repeats = [as_bytes(_images(ours.variant, result)) for result in ours.others] or [pictures["baseline"]]
    unit, times = _times(ours.runs, theirs.runs)
    evidence = Evidence(
        speedup=times,
        difference=_distance(pictures["optimized"], pictures["baseline"], lpips),
        same_bits=theirs.first.equals(ours.first),
        seed=_distance(pictures["other_seed"], pictures["baseline"], lpips),
        repeat=max(
            (_distance(picture, pictures["baseline"], lpips) for picture in repeats if len(ours.runs) > 1),
            key=lambda distance: distance.rmse,
            default=None,
        ),
        precision=_distance(as_bytes(_images(ours.variant, precise)), pictures["baseline"], lpips) if precise else None,
        broken=trouble(before, "baseline's") or trouble(after, "optimised"),
    )
    techniques = [*stack_of(theirs.variant.model).techniques, *stack_of_vae(theirs.variant.vae).techniques]
    a, b = theirs.first.latent.double(), ours.first.latent.double()
    return Comparison(
        job=job,
        settings=settings,
        unit=unit,
        baseline=ours.runs,
        optimized=theirs.runs,
        pictures=pictures,
        from_preview=ours.variant.vae is None,
        latent_change=float((a - b).norm() / b.norm()) if b.any() else float((a - b).norm()),
        evidence=evidence,
        verdict=judge(evidence),
        reports={"baseline": _report(ours.variant), "optimized": _report(theirs.variant)},
        activity={technique.title: technique.last_summary() for technique in techniques},
        notes=(*notes, *([f"LPIPS: {missing}"] if missing else []), *_picture_notes(ours.variant)),
    )


def _times(ours: list[Run], theirs: list[Run]) -> tuple[str, Speedup]:
    """Return what the headline's speed-up is of, and the speed-up."""
    both = [*ours, *theirs]
    if all(run.decode_seconds is None for run in both):
        unit = "step" if all(run.step_seconds for run in both) else "sampling"
    else:
        unit = "decode" if all(run.sampling_seconds is None for run in both) else "picture"
    return unit, measure_speedup([seconds(run, unit) for run in ours], [seconds(run, unit) for run in theirs])


def seconds(run: Run, unit: str) -> float:
    """Return what a run took in the unit of the headline."""
    if unit == "step":
        return run.step_seconds or 0.0
    return (run.sampling_seconds or 0.0) + (run.decode_seconds or 0.0)


def _images(variant: Variant, result: Result) -> Tensor:
    if result.images is not None:
        return result.images
    if variant.vae is None:
        return preview(variant.model, result.latent)
    return decode(variant.vae, result.latent).cpu()


def _report(variant: Variant) -> str:
    # A VAE without techniques has nothing to report, and may be an object of another pack.
    return report_text(variant.model, variant.vae if stack_of_vae(variant.vae).techniques else None)


def _distance(pictures: Tensor, references: Tensor, lpips: Lpips | None) -> Distance:
    return compare_pictures(pictures, references, lpips)


def _precise_model(baseline: Variant, wanted: bool) -> tuple[Any, str]:
    """Return a clone of the baseline that computes in fp32, or None and why there is none."""
    if not wanted:
        return None, ""
    # Looked up with the clone's own changes: a node can have chosen another dtype for it.
    dtype = baseline.model.get_model_object("manual_cast_dtype") or baseline.model.model.get_dtype()
    if dtype == torch.float32:
        return None, "fp32_reference: the baseline computes in fp32 already"
    clone = baseline.model.clone()
    clone.set_model_compute_dtype(torch.float32)
    return clone, ""


def _picture_notes(variant: Variant) -> list[str]:
    if variant.vae is None:
        return ["no VAE: pictures and distances are of rough previews of the latent"]
    return []


def _steps(job: SamplingJob, settings: ComparisonSettings, sampling: bool, decoding: bool, precise: bool) -> int:
    """Return how many steps of the sampler, and how many decodings, a comparison takes."""
    passes = 2 * (settings.runs + settings.warmup_runs) + (0 if settings.warmup_runs else 1)
    sampled = passes if sampling else 1 + max(1, settings.warmup_runs)
    return job.steps * (sampled + precise) + (passes if decoding else 0)
