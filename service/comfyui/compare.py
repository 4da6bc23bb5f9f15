"""Compare two MODELs, or two VAEs: what ComfyUI draws for the judge (``measure/measure.py``)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...measure.drawn import Decoded, Drawn, TimedRun, spectrogram_picture
from ...measure.evidence import LATE, kept_levels
from ...measure.measure import SIDES, Comparison, MeasurePlan, measure
from ...optimizers.core.technique import STEP_REUSE
from ...optimizers.in_comfyui.run.stack import stack_of
from ...optimizers.in_comfyui.structure.model_facts import require_model
from ...optimizers.in_comfyui.structure.protocols import VAE, ModelPatcher
from ...optimizers.in_comfyui.targets.method_proxy import stack_on
from .comparison_report import environment
from .machine import beside_the_allocator, empty_cache, progress_bar, stop_if_cancelled
from .report_text import report_text
from .sampling_job import Clock, Sampled, SamplingJob, decode, decode_sound, preview, sample_rate, timed_decode


@dataclass(frozen=True)
class Side:
    """One side of the comparison.

    Without a ``vae`` it shows ComfyUI's rough preview, or spectrograms if there is an ``audio_vae``, which decodes the
    sound.
    """

    model: ModelPatcher
    vae: VAE | None = None
    audio_vae: VAE | None = None


def compare(
    baseline: Side,
    optimized: Side,
    job: SamplingJob,
    plan: MeasurePlan,
    say: Callable[[str], None] = lambda text: None,
    clock: Clock = time.perf_counter,
    show: Callable[[float], None] | None = None,
) -> Comparison:
    """Run both sides, each round from another seed, and judge the difference.

    What they share (sampling, VAE) is not compared. ``say`` is told what is going on, ``show`` which share of the work
    is done (default: the node's progress bar). Raises `InvalidSetting` if their pictures differ in size,
    `UnsupportedModel` if there is neither a VAE nor a preview for the model's latents.
    """
    for side in (baseline, optimized):
        require_model(side.model)
    drawing = _ComfyDraw(baseline, optimized, job, plan.draws, clock, show or progress_bar())
    try:
        found = measure(drawing.draw, plan if drawing.samples else replace(plan, controls=()), say)
        drawing.show(1.0)
    finally:
        empty_cache()
    sound_only, notes = found.sounds is not None and not drawing.draws_sound_too, list(found.notes)
    from_preview = baseline.vae is None and not sound_only
    if from_preview:
        notes.append("no VAE: pictures and distances are of rough previews of the latent")
    if baseline.vae is None and sound_only:
        notes.append("pictures are spectrograms of the sound")
    if found.sounds is not None and found.sounds.rate is None:
        notes.append("no audio_vae: the distance of the sound is of its latent")
    summaries = {
        technique.title: technique.last_summary()
        for technique in (*stack_of(optimized.model).techniques, *stack_on(optimized.vae).techniques)
    }
    about: dict[str, Any] = {
        "pictures": "rough previews of the latent" if from_preview else "decoded by the VAE",
        "activity": {
            title: {"state": one.state, "text": one.text, "details": list(one.details)}
            for title, one in summaries.items()
        },
        "settings": {**asdict(plan), **job.settings(), "runs": len(found.runs["baseline"])},
        "reports": {name: _report(side) for name, side in zip(SIDES, (baseline, optimized), strict=True)},
        "surroundings": environment(baseline.model),
    }
    return replace(found, notes=notes, about=about)


class _ComfyDraw:
    """Draws with both sides and the controls.

    Attributes:
        samples: whether the sides' sampling is compared; if not, the baseline's latent is made once and shared.
        decodes: whether their decoding is; if not, pictures are decoded when they are needed, and not timed.
        draws_sound_too: whether the network draws a video with its sound.
    """

    def __init__(
        self, baseline: Side, optimized: Side, job: SamplingJob, most: int, clock: Clock, show: Callable[[float], None]
    ) -> None:
        self._sides = {"baseline": baseline, "optimized": optimized}
        self._job, self._clock, self._most, self.show = job, clock, most, show
        self.decodes = optimized.vae is not baseline.vae
        self.samples = optimized.model is not baseline.model or not self.decodes
        self.draws_sound_too = False
        self._shared: dict[int, Sampled] = {}
        self._done = 0

    def draw(self, name: str, seed: int, steps: int) -> Drawn:
        side = self._sides.get(name, self._sides["baseline"])
        if not self.samples and seed not in self._shared:
            self._shared[seed] = self._sample(side, name, seed, steps)
        device, decoded = torch.device(side.model.load_device), None
        sampling = step = decoding = None
        allocator: Any = getattr(torch, device.type, None)
        counts = hasattr(allocator, "max_memory_allocated")  # those of processors and of MPS do not
        if counts:
            allocator.reset_peak_memory_stats(device)
        output = self._sample(side, name, seed, steps) if self.samples else self._shared[seed]
        if self.samples:
            sampling = output.seconds
            uneven = any(technique.policy.uneven for technique in stack_of(side.model).techniques)
            step = None if uneven else output.seconds_per_step
        if self.decodes:
            assert side.vae is not None, "both sides have a VAE where decoding is compared"
            images, decoding = timed_decode(side.vae, output.latent, device, self._clock)
            decoded = Decoded.of(images, exact=True)
        peak = int(allocator.max_memory_allocated(device)) + beside_the_allocator(side.model) if counts else None
        self._done += 1
        self._show_step(0.0)
        return Drawn(
            TimedRun(sampling, step, decoding, peak),
            [output.latent] if output.sound is None else [output.latent, output.sound],
            partial(_pictures, side, output) if decoded is None else lambda: decoded,
            b"" if decoded is None else decoded.digest,
            None if side.audio_vae is None and output.sound is None else partial(_sound, side.audio_vae, output),
            None if side.audio_vae is None else sample_rate(side.audio_vae),
            _work(side) if self.samples else None,
        )

    def _sample(self, side: Side, name: str, seed: int, steps: int) -> Sampled:
        late = kept_levels(self._job.steps, steps) if name == LATE else None
        job, taken = self._job if late else replace(self._job, steps=steps), 0

        def on_step() -> None:
            nonlocal taken
            taken += 1
            self._show_step(taken / (steps + 1))

        output = job.sample(side.model, seed, self._clock, on_step, late)
        self.draws_sound_too = output.sound is not None
        return output

    def _show_step(self, share: float) -> None:
        stop_if_cancelled()
        self.show(min(1.0, (self._done + share) / self._most))


def _work(side: Side) -> tuple[float, float] | None:
    """Return the evaluations that Reuse Steps has computed in the last run, and all of it."""
    technique = stack_of(side.model).find(STEP_REUSE)
    counts = {} if technique is None else technique.last_summary().counts
    return (counts["computed"], counts["evaluations"]) if counts.get("evaluations") else None


def _pictures(side: Side, output: Sampled) -> Decoded:
    if side.vae is None and side.audio_vae is not None and output.sound is None:
        return Decoded.of(spectrogram_picture(decode_sound(side.audio_vae, output.latent)))
    return Decoded.of(preview(side.model, output.latent) if side.vae is None else decode(side.vae, output.latent))


def _sound(vae: VAE | None, output: Sampled) -> Tensor:
    latent = output.latent if output.sound is None else output.sound
    return latent if vae is None else decode_sound(vae, latent)


def _report(side: Side) -> str:
    # A VAE without techniques has nothing to report, and may be an object of another pack.
    return report_text(side.model, side.vae if stack_on(side.vae).techniques else None)
