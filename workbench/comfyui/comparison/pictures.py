"""Outputs of runs become pictures that can be compared: uint8 ``[pictures, height, width, 3]``, as they are saved."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...measurement import to_8_bit
from ..latents import decode, preview
from .rounds import Output, Side, SideRuns


@dataclass(frozen=True)
class Pictures:
    """All pictures of a comparison, in bytes.

    Attributes:
        baseline: from the job's seed; likewise ``optimized``.
        other_seed: the baseline from another seed.
        repeats: the baseline from the same seed again, where that gave another output; at least ``baseline`` itself.
        fp32: the baseline in fp32, if it was drawn.
        broken: what is wrong, if the baseline's or the optimised ones are no pictures at all, else empty.
    """

    baseline: Tensor
    optimized: Tensor
    other_seed: Tensor
    repeats: tuple[Tensor, ...]
    fp32: Tensor | None
    broken: str


def make_pictures(baseline: SideRuns, optimized: SideRuns, other_seed: Output, fp32: Output | None) -> Pictures:
    """Return the pictures of all outputs; those that were not decoded by a run are decoded now.

    Raises:
        UnsupportedModel: if there is neither a VAE nor a preview for the model's latents.
    """
    before, after = _images(baseline.side, baseline.first), _images(optimized.side, optimized.first)
    plain = _bytes(before)
    repeats = tuple(_bytes(_images(baseline.side, output)) for output in baseline.others)
    return Pictures(
        baseline=plain,
        optimized=_bytes(after),
        other_seed=_bytes(_images(baseline.side, other_seed)),
        # A run that equals the first one was not kept: its distance is that of the first to itself.
        repeats=repeats or (plain,),
        fp32=None if fp32 is None else _bytes(_images(baseline.side, fp32)),
        broken=_trouble(before, "baseline's") or _trouble(after, "optimised"),
    )


def _images(side: Side, output: Output) -> Tensor:
    """Return float images ``[pictures, height, width, channels]``."""
    if output.images is not None:
        return output.images
    if side.vae is None:
        return preview(side.model, output.latent)
    return decode(side.vae, output.latent).cpu()


def _bytes(images: Tensor) -> Tensor:
    images = images[..., :3]
    return to_8_bit(images if images.shape[-1] == 3 else images[..., :1].expand(*images.shape[:-1], 3))


def _trouble(images: Tensor, whose: str) -> str:
    if not images.isfinite().all():
        return f"The {whose} image has values that are not numbers (NaN or infinite)"
    if images.float().amax() == images.float().amin():
        return f"The {whose} image is one flat colour"
    return ""
