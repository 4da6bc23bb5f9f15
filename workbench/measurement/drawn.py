"""What one sampling run gave: times, latents, pictures and sound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import torch
from torch import Tensor

from .quality import Distance, distances, of_error, to_8_bit


@dataclass(frozen=True)
class TimedRun:
    """What one run took; None for a part that is not compared or cannot be measured here.

    ``sampling_seconds`` may include loading the model; ``step_seconds`` is the mean of all steps but the first, None
    where a technique makes the first ones longer than others; the bytes are those of ``PeakMemory``.
    """

    sampling_seconds: float | None
    step_seconds: float | None = None
    decode_seconds: float | None = None
    device_bytes: int | None = None
    process_bytes: int | None = None

    def seconds(self, unit: str) -> float:
        """Return what it took in a unit of ``Comparison``."""
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
        errors = torch.stack([(a.double() - b.double()).square().flatten(1).mean(1).cpu() for a, b in pairs]).amax(0)
        return [of_error(error, None) for error in errors.nan_to_num(torch.inf).tolist()]
