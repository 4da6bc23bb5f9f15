"""Compare an optimized MODEL or VAE with its baseline: check, run, make pictures, judge."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from ....core.errors import InvalidSetting
from ....core.phrases import phrase
from ....optimizers.hosts.comfyui.model import require_model
from ....optimizers.hosts.comfyui.protocols import ModelPatcher
from ...measurement.steps import Clock
from ..device_memory import recordings_kept
from ..long_running import empty_cache, progress_bar, stop_if_cancelled
from .fewer_steps import draw_fewer_steps
from .findings import Comparison, evaluate, speedup_of
from .pictures import make_pictures, with_control
from .rounds import ComparisonSettings, Job, Rounds, Side
from .sounds import make_sounds


def compare(
    baseline: Side,
    optimized: Side,
    job: Job,
    settings: ComparisonSettings,
    say: Callable[[str], None] = lambda text: None,
    clock: Clock = time.perf_counter,
    show: Callable[[float], None] | None = None,
) -> Comparison:
    """Run both sides with the same seed and judge the difference; what they share (sampling, VAE) is not compared.

    ``say`` is told what is going on, ``show`` which share of the work is done (default: the node's progress bar).

    Raises:
        InvalidSetting: if their pictures differ in size, or a VAE has none to be compared with.
        UnsupportedModel: if there is neither a VAE nor a preview for the model's latents.
    """
    for side in (baseline, optimized):
        require_model(side.model)
    compares_decoding = optimized.vae is not baseline.vae
    samples_alike = optimized.model is baseline.model and optimized.own is baseline.own
    compares_sampling = not samples_alike or not compares_decoding
    if compares_decoding and baseline.vae is None:
        raise InvalidSetting("vae_optimized has nothing to be compared with.", "Connect the untouched VAE to vae.")
    in_fp32, why_not = _in_fp32(baseline.model) if settings.fp32_reference and compares_sampling else (None, "")
    controls = settings.fewer_steps and compares_sampling and job.steps > 1
    further = (in_fp32 is not None) + controls
    total, done = _steps(job, settings, compares_sampling, compares_decoding, further), 0
    show = show or progress_bar()

    def advance(steps: int = 1) -> None:
        nonlocal done
        stop_if_cancelled()
        done += steps
        show(done / total)

    rounds = Rounds(job, compares_sampling, compares_decoding, clock, advance, say)
    sides = (baseline, optimized)
    try:
        with recordings_kept(*(side.model for side in sides)):
            other_seed = rounds.warm_up(sides, settings.warmup_runs)
            baseline_runs, optimized_runs = rounds.measure(sides, settings.runs)
        reference = None
        if in_fp32 is not None:
            say(phrase("baseline in fp32"))
            _, reference = rounds.draw(in_fp32)
        say(phrase("comparing the pictures"))
        pictures = make_pictures(baseline_runs, optimized_runs, other_seed, reference)
        sounds = make_sounds(baseline_runs, optimized_runs, other_seed)
        notes, control, drawn = [why_not] if why_not else [], None, 0
        draws_another = any(not output.equals(baseline_runs.outputs[1]) for output in optimized_runs.outputs.values())
        faster = speedup_of(baseline_runs.runs, optimized_runs.runs)[1].faster
        if controls and draws_another and faster and not pictures.broken:
            say(phrase("baseline with fewer steps"))
            control, why_none = draw_fewer_steps(rounds, job.steps, baseline_runs, optimized_runs)
            notes += [why_none] if why_none else []
            drawn = control.steps if control else 0
            pictures = with_control(pictures, baseline, control) if control else pictures
        if controls:
            advance(job.steps - drawn)  # the total holds the most that the control could have taken
        return evaluate(job, settings, baseline_runs, optimized_runs, pictures, sounds, notes, control)
    finally:
        empty_cache()


def _in_fp32(model: ModelPatcher) -> tuple[ModelPatcher | None, str]:
    # Looked up with the clone's own changes: a node can have chosen another dtype for it.
    dtype = model.get_model_object("manual_cast_dtype") or model.model.get_dtype()
    if dtype == torch.float32:
        return None, "fp32_reference: the baseline computes in fp32 already"
    clone = model.clone()
    clone.set_model_compute_dtype(torch.float32)
    return clone, ""


def _steps(job: Job, settings: ComparisonSettings, sampling: bool, decoding: bool, further: int) -> int:
    """Return how many steps of the sampler, and how many decodings, a comparison takes at most."""
    passes = 2 * (settings.runs + settings.warmup_runs) + (0 if settings.warmup_runs else 1)
    sampled = passes if sampling else 1 + max(1, settings.warmup_runs)
    return job.steps * (sampled + further) + (passes if decoding else 0)
