"""The frames of a video's latent, as a scheduler is given it."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ...step_reuse.parts import undivided


def frames_of(latent: Tensor, channels: int | None, frames: int = 0) -> Sequence[Tensor]:
    """Return a latent as one stream ``[batch, frames, ...]``.

    ``channels``: how many the denoiser gives, which stand before the frames or behind them. ``frames``: how many it was
    told there are (0: it was not), where the latent is tokens ``[batch, frames * places, channels]``.
    """
    if latent.ndim == 5:
        behind = latent.shape[2] == channels != latent.shape[1]
        return [latent if behind else latent.movedim(2, 1)]
    if latent.ndim == 3 and frames and latent.shape[1] % frames == 0:
        return [latent.unflatten(1, (frames, -1))]
    return undivided(latent)
