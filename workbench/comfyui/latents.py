"""Latents of a MODEL: their pictures, with a VAE or roughly without one, other sizes, and how far they are apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from statistics import fmean

import torch
from torch import Tensor

from ...core.errors import InvalidSetting, UnsupportedModel
from ...optimizers.hosts.comfyui.model import describe_model
from ...optimizers.hosts.comfyui.protocols import VAE, ModelPatcher
from ..measurement.quality import to_8_bit


@dataclass(frozen=True)
class Decoded:
    """Pictures as they are saved: all that is kept of what a VAE gives.

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


def decode(vae: VAE, latent: Tensor) -> Tensor:
    """Decode as the VAE Decode node does, to ``[pictures, height, width, channels]`` in [0, 1].

    The frames of a video follow each other. `InvalidSetting` if the VAE decodes sound, or belongs to models with other
    latents.
    """
    try:
        images = vae.decode(latent)
    except RuntimeError:
        channels, given = getattr(vae, "latent_channels", None), latent.shape[1]
        if channels in (None, given):
            raise
        raise InvalidSetting(
            f"The VAE decodes latents of {channels} channels, and those of this model have {given}.",
            "Connect the VAE that belongs to the model.",
        ) from None
    if images.ndim < 4:
        raise InvalidSetting("The VAE decodes sound, not pictures.", "Connect it to audio_vae of Compare Models.")
    return images.flatten(0, -4) if images.ndim > 4 else images  # [batch, frames, ...] -> [batch * frames, ...]


def decode_sound(vae: VAE, latent: Tensor) -> Tensor:
    """Decode to waves ``[batch, channels, samples]`` on the CPU; `InvalidSetting` if the VAE decodes pictures."""
    wave = vae.decode(latent)
    if wave.ndim != 3:
        raise InvalidSetting(
            "audio_vae decodes pictures, not sound.",
            "Connect the VAE of the model's sound, and that of pictures to vae.",
        )
    return wave.movedim(-1, 1).float().cpu()


def sample_rate(vae: VAE) -> int:
    """Return the sample rate of a VAE's sound in Hz, as the VAE Decode Audio node does."""
    return int(getattr(vae, "audio_sample_rate_output", getattr(vae, "audio_sample_rate", 44100)))


def preview(model: ModelPatcher, latent: Tensor) -> Tensor:
    """Return the rough colours of ComfyUI's live preview, one pixel for each place of the latent.

    ``latent`` is ``[batch, channels, (frames,) height, width]``. `UnsupportedModel` if ComfyUI knows no colours for it.
    """
    kind = model.get_model_object("latent_format")
    if not getattr(kind, "latent_rgb_factors", None):
        raise UnsupportedModel(
            f"ComfyUI has no preview colours for the latents of {describe_model(model)}, so there is no picture "
            "to compare.",
            "Connect a VAE to the node.",
        )
    latent = kind.process_in(latent.float())
    reshape = getattr(kind, "latent_rgb_factors_reshape", None)
    latent = latent if reshape is None else reshape(latent)
    factors = torch.tensor(kind.latent_rgb_factors)  # [channels, 3]
    pixels = latent.movedim(1, -1) @ factors
    if getattr(kind, "latent_rgb_factors_bias", None) is not None:
        pixels = pixels + torch.tensor(kind.latent_rgb_factors_bias)
    pixels = (pixels + 1) / 2
    return pixels.flatten(0, -4) if pixels.ndim > 4 else pixels


def streams_of(samples: Tensor) -> list[Tensor]:
    """Return the latents in the samples of a LATENT: one, or several in a NestedTensor, as a video and its sound."""
    return [*samples.unbind()] if samples.is_nested else [samples]


def distance(one: Tensor, two: Tensor) -> tuple[float, int]:
    """Return the root mean square of the difference of two samples' farthest picture, and its number in the batch."""
    pairs = list(zip(streams_of(one), streams_of(two), strict=True))
    squares = torch.stack([(a.double() - b.double()).square().flatten(1).mean(1).cpu() for a, b in pairs]).amax(0)
    number = int(squares.nan_to_num(torch.inf).argmax())
    return float(squares[number].sqrt()), number


def seed_distance(plain: Sequence[Tensor]) -> float:
    """Return the distance between samples of different seeds, the root mean square over their pairs."""
    found = [distance(a, b)[0] for i, a in enumerate(plain) for b in plain[:i]]
    return math.sqrt(fmean(one**2 for one in found))
