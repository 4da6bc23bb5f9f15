"""Outputs of runs become pictures that can be compared: uint8 ``[pictures, height, width, 3]``, as they are saved."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from ...measurement.quality import to_8_bit
from ...measurement.sound import spectrogram_picture
from ..latents import decode, decode_sound, preview
from .fewer_steps import Control
from .rounds import Output, Side, SideRuns


@dataclass(frozen=True)
class Pictures:
    """All pictures of a comparison, in bytes.

    Attributes:
        baseline: from the job's seed, of the first run.
        optimized: of the run that is farthest from ``baseline``; of the first run until that is known.
        baseline_runs: from the job's seed, by number of the run, where they differ; so are ``optimized_runs``.
        fp32: the baseline in fp32, if it was drawn.
        broken: what is wrong, if a run of one side gave no picture at all, else empty.
        fewer_steps: the baseline with as many steps as fit into the optimized side's time, if it was drawn.
        frames: how many of them follow each other in one video; 1 for pictures.
    """

    baseline: Tensor
    optimized: Tensor
    other_seed: Tensor
    baseline_runs: dict[int, Tensor]
    optimized_runs: dict[int, Tensor]
    fp32: Tensor | None
    broken: str
    fewer_steps: Tensor | None = None
    frames: int = 1


def make_pictures(baseline: SideRuns, optimized: SideRuns, other_seed: Output, fp32: Output | None) -> Pictures:
    """Return the pictures of all outputs, decoding those that no run has decoded.

    `UnsupportedModel` if there is neither a VAE nor a preview for the model's latents.
    """
    troubles: list[str] = []

    def of_runs(side: SideRuns, whose: str) -> dict[int, Tensor]:
        pictures = {}
        for number, output in side.outputs.items():
            images = _images(side.side, output)
            trouble = _trouble(images)
            if trouble:
                run = f" of run {number}" if len(side.outputs) > 1 else ""
                troubles.append(f"{whose}{run} {trouble}")
            pictures[number] = _bytes(images)
        return pictures

    before, after = of_runs(baseline, "The baseline's image"), of_runs(optimized, "The optimized image")
    return Pictures(
        baseline=before[1],
        optimized=after[1],
        other_seed=_bytes(_images(baseline.side, other_seed)),
        baseline_runs=before,
        optimized_runs=after,
        fp32=None if fp32 is None else _bytes(_images(baseline.side, fp32)),
        broken=troubles[0] if troubles else "",
        frames=len(before[1]) // len(other_seed.latent) if other_seed.latent.ndim == 5 else 1,
    )


def with_control(pictures: Pictures, baseline: Side, control: Control) -> Pictures:
    """Return the pictures with those of the control among them."""
    return replace(pictures, fewer_steps=_bytes(_images(baseline, control.output)))


def _images(side: Side, output: Output) -> Tensor:
    """Return float images ``[pictures, height, width, channels]``."""
    if output.images is not None:
        return output.images
    if side.vae is None and side.audio_vae is not None and output.sound is None:
        return spectrogram_picture(decode_sound(side.audio_vae, output.latent))
    if side.vae is None:
        return preview(side.model, output.latent)
    return decode(side.vae, output.latent).cpu()


def _bytes(images: Tensor) -> Tensor:
    images = images[..., :3]
    return to_8_bit(images if images.shape[-1] == 3 else images[..., :1].expand(*images.shape[:-1], 3))


def _trouble(images: Tensor) -> str:
    if not images.isfinite().all():
        return "has values that are not numbers (NaN or infinite)"
    if images.float().amax() == images.float().amin():
        return "is one flat colour"
    return ""
