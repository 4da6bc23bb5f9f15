"""How far sounds are apart: by their spectra where they can be heard, else by their latents."""

from __future__ import annotations

import math
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
    """How far a sound is from the baseline's: the root mean square ``difference`` of its worst second, in dB.

    ``second`` counts from 1; it is None for latents, of which the difference is of the worst of them.
    """

    difference: float
    second: int | None = None

    def __str__(self) -> str:
        if self.difference == 0:
            return "the same to the last bit"
        if self.second is None:
            return f"{self.difference:.3g} of the latent"
        return f"{self.difference:.3g} dB in second {self.second}, the farthest"


@dataclass(frozen=True)
class Sounds:
    """The sound of a comparison.

    Attributes:
        distance: None where a sound has values that are not numbers, which ``broken`` says.
        waves: by side, ``[channels, samples]``, that ``distance`` is of; empty where latents were compared.
        rate: of the waves, in samples a second.
    """

    distance: SoundDistance | None
    waves: dict[str, Tensor]
    rate: int | None
    broken: str = ""


def compare_sounds(baseline: Tensor, optimized: Tensor, rate: int | None) -> Sounds:
    """Return how far the sounds of all rounds are apart; arguments as of :func:`sound_distance`."""
    for whose, sounds in (("The baseline's sound", baseline), ("The optimized sound", optimized)):
        if not sounds.isfinite().all():
            return Sounds(None, {}, rate, f"{whose} has values that are not numbers (NaN or infinite)")
    distance, worst = sound_distance(baseline, optimized, rate)
    return Sounds(distance, {} if rate is None else {"baseline": baseline[worst], "optimized": optimized[worst]}, rate)


def sound_distance(baseline: Tensor, optimized: Tensor, rate: int | None) -> tuple[SoundDistance, int]:
    """Return the distance of two sides, and the index of the sound that it is of.

    Waves ``[sounds, channels, samples]`` at ``rate`` samples a second, or latents ``[sounds, ...]`` where that is None.
    """
    found = _distances(optimized, baseline, rate)
    worst, second = divmod(int(found.argmax()), found.shape[1])
    return SoundDistance(float(found.max()), None if rate is None else second + 1), worst


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
