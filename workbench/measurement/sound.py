"""How far sounds are apart: by their spectra where they can be heard, else by their latents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

_WINDOW = 1024
"""Samples of one spectrum; the next one begins a quarter of it later."""

_QUIETEST = -80.0
"""In dB below full scale: quieter parts count as silence."""


@dataclass(frozen=True)
class SoundDistance:
    """How far a sound is from the baseline's, and how far other sounds are.

    Attributes:
        difference: of the worst second of all sounds; of latents, of the worst of them.
        seed: between the baseline's sounds and its own from other seeds, on average.
        repeat: the largest between the baseline's own sounds from the same seed; None if none was drawn again.
        second: that ``difference`` is of, from 1; None for latents, whose distances are root mean squares. Those of
            sounds that can be heard are root mean squares in dB.
    """

    difference: float
    seed: float
    repeat: float | None = None
    second: int | None = None

    @property
    def share(self) -> float | None:
        """The difference as a share of a seed change; None if a seed changes nothing."""
        return self.difference / self.seed if self.seed else None

    @property
    def within_repeat(self) -> bool:
        """Whether the difference is no larger than the baseline's own from run to run."""
        return self.repeat is not None and self.difference <= self.repeat

    def __str__(self) -> str:
        if self.difference == 0:
            return "the same to the last bit"
        unit = "" if self.second is None else " dB"
        where = " of the latent" if self.second is None else f" in second {self.second}, the farthest"
        repeat = "" if self.repeat is None else f"; baseline repeated: {self.repeat:.3g}{unit}"
        return f"{self.difference:.3g}{unit}{where}; another seed: {self.seed:.3g}{unit}{repeat}"


def sound_distance(
    baseline: Tensor, optimized: Tensor, seeds: Sequence[Tensor], again: Tensor | None, rate: int | None
) -> tuple[SoundDistance, int]:
    """Return the distance, and the index of the sound that it is of.

    Waves ``[sounds, channels, samples]`` at ``rate`` samples a second, or latents ``[sounds, ...]`` where that is None:
    of both sides, twice of the baseline from different ``seeds``, and its first ones drawn ``again``.
    """
    found = _distances(optimized, baseline, rate)
    worst, second = divmod(int(found.argmax()), found.shape[1])
    seed = _distances(seeds[0], seeds[1], rate).square().mean().sqrt()
    repeat = None if again is None else float(_distances(again, baseline[: len(again)], rate).max())
    return SoundDistance(float(found.max()), float(seed), repeat, None if rate is None else second + 1), worst


def spectrogram(wave: Tensor) -> Tensor:
    """Return the level in dB of ``[batch, channels, samples]``: ``[batch, frequencies, times]``, full scale being 0."""
    window = torch.hann_window(_WINDOW)
    channels = F.pad(wave.float().flatten(0, 1), (0, max(0, _WINDOW - wave.shape[-1])))
    spectra = torch.stft(channels, _WINDOW, _WINDOW // 4, window=window, pad_mode="constant", return_complex=True)
    power: Tensor = spectra.abs().square().unflatten(0, wave.shape[:2]).mean(1) / window.sum().div(2).square()
    return (10 * power.clamp(min=10 ** (_QUIETEST / 10)).log10()).clamp(max=0.0)


def spectrogram_picture(wave: Tensor) -> Tensor:
    """Return spectrograms as pictures ``[batch, height, width, 1]`` in [0, 1]: low tones below, loud ones white."""
    return (1.0 - spectrogram(wave) / _QUIETEST).flip(1)[..., None]


def _distances(sound: Tensor, reference: Tensor, rate: int | None) -> Tensor:
    """Return ``[batch, seconds]``; of latents ``[batch, 1]``."""
    if rate is None:
        return (sound.double() - reference.double()).flatten(1).square().mean(1, keepdim=True).sqrt()
    squares = (spectrogram(sound) - spectrogram(reference)).square().mean(1)  # [batch, times]
    second = min(squares.shape[1], max(1, math.ceil(rate / (_WINDOW // 4))))
    return F.avg_pool1d(squares[:, None], second, ceil_mode=True)[:, 0].sqrt()
