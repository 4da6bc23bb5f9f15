"""Compare an optimized MODEL with its baseline: check, run, make pictures, judge."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from ....core.phrases import phrase
from ....optimizers.hosts.comfyui.model import require_model
from ...measurement.fewer_steps import Control, draw_control
from ...measurement.steps import Clock
from ..long_running import empty_cache, progress_bar, stop_if_cancelled
from ..sampling import Sampled, SamplingJob
from .findings import Comparison, evaluate, speedup_of
from .pictures import Pairs
from .rounds import ComparisonSettings, Rounds, Side, SideRuns, TimedRun
from .sounds import make_sounds


def compare(
    baseline: Side,
    optimized: Side,
    job: SamplingJob,
    settings: ComparisonSettings,
    say: Callable[[str], None] = lambda text: None,
    clock: Clock = time.perf_counter,
    show: Callable[[float], None] | None = None,
) -> Comparison:
    """Run both sides, each round from another seed, and judge the difference.

    What they share (sampling, VAE) is not compared. Rounds end as soon as speed and picture are clear, see
    :class:`ComparisonSettings`.

    ``say`` is told what is going on, ``show`` which share of the work is done (default: the node's progress bar).

    Raises:
        InvalidSetting: if their pictures differ in size.
        UnsupportedModel: if there is neither a VAE nor a preview for the model's latents.
    """
    for side in (baseline, optimized):
        require_model(side.model)
    compares_decoding = optimized.vae is not baseline.vae
    compares_sampling = optimized.model is not baseline.model or not compares_decoding
    controls = settings.fewer_steps and compares_sampling and job.steps > 1
    least, most = settings.rounds(job.prompts)
    total, done = _steps(job, settings, compares_sampling, compares_decoding, controls * most), 0
    show = show or progress_bar()

    def advance(steps: int = 1) -> None:
        nonlocal done
        stop_if_cancelled()
        done += steps
        show(min(1.0, done / total))

    rounds = Rounds(job, compares_sampling, compares_decoding, clock, advance, say)
    runs = before, after = SideRuns(baseline), SideRuns(optimized)
    try:
        warmed = rounds.warm_up(runs, settings.warmup_runs)
        pairs = Pairs(before, after, warmed, job.prompts)

        def clear() -> bool:
            speedup = speedup_of(before.runs, after.runs)[1]
            return speedup.settled and (not speedup.faster or pairs.clear())

        rounds.measure(runs, least, most, clear)
        again = rounds.repeat(before) if most > 1 and not pairs.same_bits else []
        say(phrase("comparing the pictures"))
        pairs.update()
        sounds = make_sounds(before, after)
        notes, control = list[str](), None
        faster = speedup_of(before.runs, after.runs)[1].faster
        if controls and faster and not pairs.same_bits and not pairs.broken:
            say(phrase("baseline with fewer steps"))
            control, why_none = draw_fewer_steps(rounds, job.steps, before, after)
            notes += [why_none] if why_none else []
        show(1.0)
        return evaluate(job, settings, pairs, again, sounds, notes, control)
    finally:
        empty_cache()


def _steps(job: SamplingJob, settings: ComparisonSettings, sampling: bool, decoding: bool, further: int) -> int:
    """Return how many steps of the sampler, and how many decodings, a comparison takes at most."""
    most, warmups = settings.rounds(job.prompts)[1], max(1, settings.warmup_runs)
    passes = 2 * (most + settings.warmup_runs) + (settings.warmup_runs < 1) + (most > 1)
    return job.steps * ((passes if sampling else most + warmups) + further) + (passes if decoding else 0)


def draw_fewer_steps(
    rounds: Rounds, steps: int, baseline: SideRuns, optimized: SideRuns
) -> tuple[Control[list[Sampled]] | None, str]:
    """Draw the baseline with as many of its ``steps`` as fit, from all seeds; or return None and why."""

    def draw(fit: int) -> tuple[float, list[Sampled]]:
        drawn = [rounds.draw(baseline.side.model, seed, fit) for seed in range(len(baseline.outputs))]
        return median(one.seconds for one in drawn), drawn

    def middle(runs: list[TimedRun], part: str) -> float:
        return median([getattr(run, part) or 0.0 for run in runs])  # no step fits into what was not measured

    whole, each = middle(baseline.runs, "sampling_seconds"), middle(baseline.runs, "step_seconds")
    return draw_control(steps, whole, each, middle(optimized.runs, "sampling_seconds"), draw)
