"""How far sounds are apart: by their spectra where they can be heard, else by their latents."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

_WINDOW = 1024
"""Samples of one spectrum; the next one begins a quarter of it later."""

_QUIETEST = -80.0
"""In dB below full scale: what is quieter counts as silence."""


@dataclass(frozen=True)
class SoundDistance:
    """How far a sound is from the baseline's, and how far other sounds are.

    Attributes:
        difference: of the worst second of the worst run; of latents, of the worst item of the batch.
        seed: between the baseline's sound and its own from another seed, on average.
        repeat: the largest between the baseline's own sounds from the same seed; None if it ran once.
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
    baseline: Mapping[int, Tensor], optimized: Mapping[int, Tensor], other_seed: Tensor, rate: int | None
) -> tuple[SoundDistance, int, int]:
    """Return the distance, and the run (by its number) and the item of the batch that it is of.

    Sounds of runs, by their numbers: waves ``[batch, channels, samples]`` at ``rate`` samples a second, or, where that
    is None, latents ``[batch, ...]``. The baseline's run 1 is the reference.
    """
    reference = baseline[1]
    found = {run: _distances(sound, reference, rate) for run, sound in optimized.items()}
    run = max(found, key=lambda number: float(found[number].max()))
    item, second = divmod(int(found[run].argmax()), found[run].shape[1])
    own = [float(_distances(sound, reference, rate).max()) for sound in baseline.values()]
    seed = _distances(other_seed, reference, rate).square().mean().sqrt()
    distance = SoundDistance(float(found[run].max()), float(seed), max(own), None if rate is None else second + 1)
    return distance, run, item


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
