"""VAEs of the right shapes without weights: a latent is an average of pixels, a picture repeats what the latent has.

ComfyUI's own classes have one size each, with up to hundreds of millions of weights.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn.functional import adaptive_avg_pool3d, interpolate

from .table import RATE, Codec, Sound

MOST = 16
"""Places along a side of a latent: some nodes make pictures of a million pixels, whatever they are asked for."""


class _Same:
    """Stands for LTX's statistics of channels."""

    def normalize(self, latents: torch.Tensor) -> torch.Tensor:
        return latents

    un_normalize = normalize


class Pixels(torch.nn.Module):
    """Pictures ``[batch, 3, (frames,) height, width]`` to latents of a `Codec` and back."""

    def __init__(self, codec: Codec) -> None:
        super().__init__()
        self.codec = codec
        self.pixel_space_vae = torch.nn.Parameter(torch.tensor(1.0))
        self.per_channel_statistics = _Same()

    def encode(self, pixels: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        codec, video = self.codec, pixels.ndim == 5
        frames = pixels if video else pixels.unsqueeze(2)
        time = (frames.shape[2] - 1) // codec.time + 1 if codec.time else frames.shape[2]
        sides = (min(MOST, max(1, side // codec.space)) for side in frames.shape[3:])
        small = adaptive_avg_pool3d(frames, (time, *sides))
        latent = small.repeat(1, math.ceil(codec.channels / 3), 1, 1, 1)[:, : codec.channels]
        return latent if codec.time else latent[:, :, 0]

    def decode(self, samples: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        codec, video = self.codec, samples.ndim == 5
        latent = samples if video else samples.unsqueeze(2)
        time = (latent.shape[2] - 1) * codec.time + 1 if codec.time else latent.shape[2]
        size = (time, *(side * codec.space for side in latent.shape[3:]))
        pixels = interpolate(latent[:, :3].tanh(), size)
        return pixels if video else pixels[:, :, 0]


class Waves(torch.nn.Module):
    """Stereo sound ``[batch, 2, samples]`` to latents of a `Sound` and back."""

    def __init__(self, sound: Sound) -> None:
        super().__init__()
        self.sound = sound
        self.pixel_space_vae = torch.nn.Parameter(torch.tensor(1.0))
        self.output_sample_rate = RATE
        self.latent_frequency_bins = sound.bins

    def num_of_latents_from_frames(self, frames: int, rate: float) -> int:
        return math.ceil(frames / rate * self.sound.per_second)

    def encode(self, wave: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        sound = self.sound
        time = max(1, round(wave.shape[-1] / RATE * sound.per_second))
        mean = interpolate(wave.mean(1, keepdim=True), time)[:, :, :, None].expand(-1, sound.channels, -1, sound.bins)
        return mean.transpose(2, 3).contiguous() if sound.time_last else mean.contiguous()

    def decode(self, samples: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        sound = self.sound
        time = samples.mean((1, 2 if sound.time_last else 3)).unsqueeze(1).tanh()
        return interpolate(time, round(time.shape[-1] / sound.per_second * RATE)).repeat(1, 2, 1)


def shape(vae: Any, kind: Codec | Sound) -> None:
    """Turn ComfyUI's VAE for pixels, which has just been made, into one of another shape."""
    network = Pixels(kind) if isinstance(kind, Codec) else Waves(kind)
    vae.first_stage_model = network.eval()
    vae.patcher = type(vae.patcher)(network, vae.patcher.load_device, vae.patcher.offload_device)
    vae.latent_channels = kind.channels
    vae.memory_used_encode = vae.memory_used_decode = lambda shape, dtype: 1
    if isinstance(kind, Sound):
        same = lambda value: value  # noqa: E731
        vae.process_input = vae.process_output = same
        vae.output_channels, vae.pad_channel_value, vae.crop_input = 2, "replicate", False
        vae.audio_sample_rate, vae.upscale_ratio, vae.downscale_ratio = RATE, 1, 1
        return
    space, time = kind.space, kind.time
    if not time:
        vae.upscale_ratio = vae.downscale_ratio = space
        return
    vae.latent_dim = 3
    vae.upscale_ratio = (lambda frames: max(0, frames * time - time + 1), space, space)
    vae.downscale_ratio = (lambda frames: max(0, (frames + time - 1) // time), space, space)
    vae.upscale_index_formula = vae.downscale_index_formula = (time, space, space)
