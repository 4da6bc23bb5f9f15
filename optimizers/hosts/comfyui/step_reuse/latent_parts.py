"""The parts of a run's latent that are judged one by one: streams (a video, its sound) and the frames of a video."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from torch import Tensor

from ....step_reuse.parts import Split


def shapes_in(conds: dict[str, list[dict[str, Any]]]) -> Sequence[Sequence[int]] | None:
    """Return the shapes of the latents that ComfyUI has packed into one; None for a latent that is not packed."""
    entries = (entry.get("model_conds", {}) for some in conds.values() for entry in some or ())
    told = next((entry["latent_shapes"] for entry in entries if "latent_shapes" in entry), None)
    return getattr(told, "cond", None)


def split_for(shapes: Sequence[Sequence[int]], mask: Tensor | None = None) -> Split:
    """Return what splits a latent of these ``shapes``, packed to ``[batch, 1, elements]`` if they are several.

    What a ``mask``, of the latent's shape, keeps as it is (a given frame, a given sound) is left out: the sampler puts
    it back in each step, and networks are not trained to say anything about it.
    """
    free = [None] * len(shapes) if mask is None else [_free(stream) for stream in _streams(mask, shapes)]
    if all(frames is not None and not len(frames) for frames in free):
        free = [None] * len(shapes)

    def split(latent: Tensor) -> list[Tensor]:
        both = zip(_streams(latent, shapes), free, strict=True)
        return [
            stream if frames is None else stream[:, frames] for stream, frames in both if frames is None or len(frames)
        ]

    return split


def _streams(latent: Tensor, shapes: Sequence[Sequence[int]]) -> list[Tensor]:
    flat = latent.flatten(1).split([prod(shape[1:]) for shape in shapes], 1)
    streams = [part.unflatten(1, tuple(shape[1:])) for part, shape in zip(flat, shapes, strict=True)]
    # [batch, channels, frames, height, width]
    return [stream.movedim(2, 1) if stream.ndim == 5 else stream.unsqueeze(1) for stream in streams]


def _free(mask: Tensor) -> Tensor | None:
    """Return the numbers of the frames that are drawn at least in part; None for all."""
    free = (mask > 0).flatten(2).any(2).any(0)
    return None if free.all() else free.nonzero().flatten()
