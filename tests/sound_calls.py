"""Networks that draw a video and its sound, with all that the video can be conditioned on; and what decodes both."""

from __future__ import annotations

import torch
from comfy_host import in_process
from comfy_host.transformers import conditioning, latent

TEXT = 20
RATE, SAMPLES = 16_000, 24_000
FRAMES, ROWS, COLUMNS, SOUND = 3, 8, 12, 10


def random(*size):
    return torch.randn(size, generator=torch.Generator().manual_seed(3))


def image(height=16, width=24):
    return {"kind": "image", "latent_h": height, "latent_w": width, "latent": random(1, 24, 1, height, width)}


def sound(frames):
    return {"kind": "audio", "ref_audio_t": frames, "audio_latent": random(1, 32, 2, frames)}


def video_with_sound():
    size = {"latent_t": 3, "latent_h": 8, "latent_w": 4, "latent": random(1, 24, 3, 8, 4)}
    return {"kind": "video_audio", **size, "ref_audio_t": 4, "audio_latent": random(1, 32, 2, 4)}


def keyframe(index):
    return {"resolved_frame_index": index, "latent": random(1, 24, 1, 16, 24)}


CONDITIONS = {
    "none": ({}, 0),
    "first and last frame": ({"minimax_keyframes": [keyframe(0), keyframe(8)], "minimax_frame_count": 9}, 2 * 96),
    "image and sound": ({"minimax_refs": [image(12, 8), sound(7)]}, 24 + 14),
    "as many as the video": ({"minimax_refs": [image(), image(), image()]}, 288),
    "video with sound": ({"minimax_refs": [video_with_sound()]}, 24 + 8),
}


def sample(name, model, text=TEXT, cfg=7.0, size=(ROWS, COLUMNS), masks=None, steps=1, **more):
    """Return video and sound, flat, one behind the other; ``size`` is in tokens."""
    positive, negative = (conditioning(name, text, seed=seed, **more) for seed in (1, 2))
    patch = 2 if name == "minimax_h3" else 1
    samples = latent(name, *(round(side * patch) for side in size))
    chosen = samples if masks is None else {"samples": samples, "noise_mask": masks}
    drawn = in_process.sample(model, positive, negative, chosen, 7, steps, cfg, scheduler="simple")
    return torch.cat([stream.flatten() for stream in drawn.unbind()])


def guided(name, strength, mask):
    """Return conditioning and masks that make the last frame a guide with the tokens where ``mask`` is not below 0."""
    from comfy.nested_tensor import NestedTensor

    masks = torch.ones(1, 1, FRAMES, ROWS, COLUMNS)
    masks[:, :, -1] = mask
    more = {"keyframe_idxs": random(1, 3, ROWS * COLUMNS, 2).abs() * 8}
    entry = {"strength": strength, "pre_filter_count": ROWS * COLUMNS, "latent_shape": (1, ROWS, COLUMNS)}
    both = NestedTensor((masks, torch.ones(1, 8, SOUND, 16))) if name == "ltx2" else masks
    return more | {"guide_attention_entries": [entry | {"pixel_mask": None}], "masks": both}


class AudioVAE:
    """Decodes ``[batch, ...]`` to a chord of twenty tones, as loud as the latent's first numbers."""

    audio_sample_rate = RATE

    def decode(self, latent):
        times = torch.arange(SAMPLES) / RATE
        tones = torch.sin(2 * torch.pi * (200 + 150 * torch.arange(20))[:, None] * times)
        return (latent.flatten(1)[:, :20].tanh() @ tones / 20)[..., None].expand(-1, -1, 2)


class VideoVAE:
    """Decodes ``[batch, channels, frames, height, width]`` to its first three channels, eight pixels a place."""

    def decode(self, latent):
        pixels = latent[:, :3].sigmoid().movedim(1, -1)
        return pixels.repeat_interleave(8, 2).repeat_interleave(8, 3)
