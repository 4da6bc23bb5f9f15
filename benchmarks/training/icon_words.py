"""Words and pictures of the icon models: captions as ids, and four-channel "latents" as RGB.

A premultiplied RGBA picture scaled to [-1, 1] has four channels, like a Stable Diffusion latent, so the models need no
VAE: "decoding" is compositing on white.
"""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image

PAD, NULL = "<pad>", "<null>"
TOKENS = 4
"""Length of every caption after padding."""


def composite(latent: torch.Tensor) -> torch.Tensor:
    """[batch, 4, height, width] in [-1, 1] -> RGB on white [batch, height, width, 3] in [0, 1]."""
    pixels = (latent.float() + 1.0).mul(0.5).clamp(0.0, 1.0)
    rgb = pixels[:, :3] + (1.0 - pixels[:, 3:])
    return rgb.clamp(0.0, 1.0).permute(0, 2, 3, 1)


def frames_of(latent: torch.Tensor) -> torch.Tensor:
    """Return pictures as they are, and the frames of videos one after the other, [batch, 4, height, width]."""
    return latent if latent.ndim == 4 else latent.transpose(1, 2).flatten(0, 1)


def save_grid(latent: torch.Tensor, path: Path, columns: int = 8) -> None:
    """Write pictures or videos as one PNG, four times as large by nearest so that faults stay visible."""
    rgb = (composite(frames_of(latent).cpu()) * 255.0).round().to(torch.uint8)
    rows = [torch.cat(list(rgb[i : i + columns]), dim=1) for i in range(0, len(rgb), columns)]
    width = max(row.shape[1] for row in rows)
    rows = [torch.nn.functional.pad(row, (0, 0, 0, width - row.shape[1]), value=255) for row in rows]
    picture = Image.fromarray(torch.cat(rows).numpy())
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.resize((picture.width * 4, picture.height * 4), Image.Resampling.NEAREST).save(path)


def vocabulary(captions: list[str]) -> dict[str, int]:
    """Word -> row of the embedding table; the two special entries come first."""
    words = [PAD, NULL]
    for caption in captions:
        words += [word for word in caption.split() if word not in words]
    return {word: row for row, word in enumerate(words)}


def tokenize(caption: str, words: dict[str, int]) -> list[int]:
    """Caption -> TOKENS ids; the empty caption is the unconditional one."""
    ids = [words[word] for word in caption.split()] or [words[NULL]]
    if len(ids) > TOKENS:
        raise ValueError(f"the caption {caption!r} has {len(ids)} words, at most {TOKENS} are allowed")
    return ids + [words[PAD]] * (TOKENS - len(ids))
