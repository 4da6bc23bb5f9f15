"""What one sampling run gave: times, latents, pictures and sound."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import torch
import torch.nn.functional as F
from torch import Tensor

from .picture import Distance, distances, of_error, to_8_bit

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
    """Return how far the sounds of all rounds are apart.

    Waves ``[sounds, channels, samples]`` at ``rate`` samples a second, or latents ``[sounds, ...]`` where that is None.
    """
    for whose, sounds in (("The baseline's sound", baseline), ("The optimized sound", optimized)):
        if not sounds.isfinite().all():
            return Sounds(None, {}, rate, f"{whose} has values that are not numbers (NaN or infinite)")
    found = _distances(optimized, baseline, rate)
    worst, second = divmod(int(found.argmax()), found.shape[1])
    distance = SoundDistance(float(found.max()), None if rate is None else second + 1)
    return Sounds(distance, {} if rate is None else {"baseline": baseline[worst], "optimized": optimized[worst]}, rate)


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


@dataclass(frozen=True)
class TimedRun:
    """What one run took; None for a part that is not compared or cannot be measured here.

    ``sampling_seconds`` may include loading the model; ``step_seconds`` is the mean of all steps but the first, None
    where a technique makes the first ones longer than others; ``device_bytes`` the most that was in use on the
    device, None where nobody counts them.
    """

    sampling_seconds: float | None
    step_seconds: float | None = None
    decode_seconds: float | None = None
    device_bytes: int | None = None

    def seconds(self, unit: str) -> float:
        """Return its seconds in a unit of ``Comparison``."""
        if unit == "step":
            return self.step_seconds or 0.0
        return (self.sampling_seconds or 0.0) + (self.decode_seconds or 0.0)


@dataclass(frozen=True)
class Decoded:
    """Pictures as they are saved.

    Attributes:
        pictures: uint8 ``[pictures, height, width, 3]``.
        finite: of each, whether all of its values were numbers.
        digest: tells whether values are the same beyond 8 bits; empty where nobody asks.
    """

    pictures: Tensor
    finite: Tensor
    digest: bytes = b""

    @classmethod
    def of(cls, images: Tensor, exact: bool = False) -> Decoded:
        """Take float ``images`` ``[pictures, height, width, channels]``; with ``exact`` for their ``digest``."""
        images = images.detach().float().cpu().contiguous()
        digest = blake2b(images.numpy().data).digest() if exact else b""
        colours = images[..., :3] if images.shape[-1] > 2 else images[..., :1].expand(*images.shape[:-1], 3)
        return cls(to_8_bit(colours), images.flatten(1).isfinite().all(1), digest)


@dataclass(eq=False)
class Drawn:
    """What one run gave.

    Attributes:
        latents: on the CPU, ``[batch, channels, (frames,) height, width]``, then those of a video's sound. Empty where
            only pictures are known.
        show: makes the pictures, once, when they are needed; None to compare latents.
        digest: of the pictures, see ``Decoded``.
        hear: makes the sound, waves ``[batch, channels, samples]`` at ``rate``, or latents where that is None; itself
            None without sound.
        work: evaluations of the network that were computed, and all; None where they were not counted.
    """

    times: TimedRun
    latents: Sequence[Tensor] = ()
    show: Callable[[], Decoded] | None = None
    digest: bytes = b""
    hear: Callable[[], Tensor] | None = None
    rate: int | None = None
    work: tuple[float, float] | None = None

    @cached_property
    def decoded(self) -> Decoded:
        assert self.show is not None, "runs that are compared by latents have no pictures"
        return self.show()

    @property
    def frames(self) -> int:
        """How many pictures follow each other in each video; 1 for pictures."""
        video = self.show is not None and len(self.latents) > 0 and self.latents[0].ndim == 5
        return len(self.decoded.pictures) // len(self.latents[0]) if video else 1

    def equals(self, other: Drawn) -> bool:
        """Return whether both are known to be the same bit for bit."""
        same = all(map(torch.equal, self.latents, other.latents)) and self.digest == other.digest
        return same and len(self.latents) > 0

    def distances(self, reference: Drawn) -> list[Distance]:
        """Return the distance of each picture of the batch; `InvalidSetting` if pictures differ in size."""
        if self.show is not None:
            return distances(self.decoded.pictures, reference.decoded.pictures)
        pairs = zip(self.latents, reference.latents, strict=True)
        both = [(a.double().flatten(1).cpu(), b.double().flatten(1).cpu()) for a, b in pairs]
        errors = torch.stack([(a - b).square().mean(1) for a, b in both]).amax(0).nan_to_num(torch.inf)
        spreads = torch.stack([b.std(1, correction=0) for _, b in both]).amin(0).nan_to_num(0.0)
        return [of_error(error, None, spread) for error, spread in zip(errors.tolist(), spreads.tolist(), strict=True)]
