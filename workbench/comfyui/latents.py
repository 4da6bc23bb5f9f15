"""Latents of a MODEL: their pictures, with a VAE or roughly without one."""

from __future__ import annotations

import torch
from torch import Tensor

from ...core.errors import InvalidSetting, UnsupportedModel
from ...optimizers.hosts.comfyui.structure.model import describe_model
from ...optimizers.hosts.comfyui.structure.protocols import VAE, ModelPatcher


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
