"""Which network stands for a file, by the file's name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..transformer_settings import POOLED_CHANNELS

Kind = TypeVar("Kind")

MARK = "random_files.name"
"""Of a file of no content: the only tensor in it, and its name in the metadata."""

RATE = 44100
"""Samples of sound in a second, everywhere: nothing has to be resampled."""


@dataclass(frozen=True)
class Codec:
    """The shape of a VAE.

    ``space`` and ``time`` are how many pixels and frames one latent place stands for; ``time`` 0 is a VAE of pictures.
    """

    channels: int
    space: int
    time: int = 0


@dataclass(frozen=True)
class Sound:
    """The shape of a VAE of sound, ``[batch, channels, time, bins]``; ``time_last`` swaps the last two."""

    channels: int
    bins: int
    per_second: int
    time_last: bool = False


Network = tuple[str, Mapping[str, Any]]

NETWORKS: Sequence[tuple[str, Network]] = (
    ("minimax_h3|fasth3", ("minimax_h3", {})),
    ("z_image", ("z_image", {})),
    ("krea2", ("krea2", {})),
    ("scail_2", ("wan_scail", {})),
    ("wan2.2_animate", ("wan_animate", {})),
    ("wan_animate_2", ("wan_animate2", {})),
    ("wan2.1_vace", ("wan_vace", {})),
    ("wan2.2_ti2v", ("wan_5b", {})),
    ("wan2.2_i2v", ("wan", {"in_dim": 36})),
    ("wan2.1_i2v|wanmove", ("wan_i2v", {})),
    ("wan2.\\d_(t2v|bernini)", ("wan", {})),
    ("ltx-2", ("ltx2", {})),
    ("qwen_image_2\\.1", ("qwen_image21", {})),
    ("qwen.image|firered", ("qwen_image", {})),
    ("flux.?2", ("flux2", {})),
    ("flux1-fill", ("flux", {"guidance_embed": True, "in_channels": 96})),
    ("flux1", ("flux", {"guidance_embed": True})),
    ("anima-", ("anima", {})),
    ("mage_flow|mage-flow", ("mage_flow", {})),
    ("ideogram4", ("ideogram4", {})),
    ("boogu", ("boogu", {})),
    ("hidream_o1", ("hidream_o1", {})),
    ("void_pass", ("cogvideo_15", {"in_channels": 48})),
    ("sd3.5", ("sd3", {})),
    ("hunyuanvideo1.5", ("hunyuan_video_15", {})),
    ("netayume", ("lumina2", {})),
    ("newbie", ("lumina2", {"clip_text_dim": POOLED_CHANNELS})),
    ("v1-5|sam3", ("sd15", {})),
    ("sd_xl", ("sdxl", {})),
)
"""Patterns of diffusion models' files; a name in ``transformers.ALL``, and other settings than there."""

CODECS: Sequence[tuple[str, Codec | Sound]] = (
    ("minimax_h3_audio", Sound(32, 2, 40, time_last=True)),
    ("ltx.*( sound$|audio)", Sound(8, 16, 25)),
    ("qwen_image_2\\.1", Codec(64, 16)),
    ("wan_?2.1|wan2_1|qwen_image|krea2|anima|cogvideo", Codec(16, 8, 4)),
    ("wan2.2_vae", Codec(48, 16, 4)),
    ("flux2|full_encoder_small_decoder|mage_flow", Codec(128, 16)),
    ("minimax_h3_video", Codec(24, 16, 4)),
    ("ltx", Codec(128, 32, 8)),
    ("hunyuanvideo15", Codec(32, 16, 4)),
    ("^ae|netayume|sd3.5", Codec(16, 8)),
    ("v1-5|sd_xl", Codec(4, 8)),
    ("hidream_o1", Codec(3, 1)),
    ("sam3", Codec(4, 8)),
)
"""Patterns of files with a VAE."""


def found(name: str, table: Sequence[tuple[str, Kind]]) -> Kind:
    """Return what a table has for a file's name; LookupError if it has nothing."""
    for pattern, kind in table:
        if re.search(pattern, name, re.IGNORECASE):
            return kind
    raise LookupError(f"No small network stands for {name}: add a line to {__file__}.")
