"""The picture that a comparison shows: baseline, optimized, and what differs, with the verdict below."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

_LARGEST, _SMALLEST = 512, 256
"""Pixels on the longer side of a shown picture: larger ones are shrunk, smaller ones enlarged by whole pixels."""

_GAP, _TEXT = 16, 16
_PAPER, _INK = (24, 24, 27), (244, 244, 245)
_GAINS = (64, 32, 16, 8, 4, 2)


def comparison_sheet(
    baseline: Tensor,
    optimized: Tensor,
    lines: Sequence[str],
    control: tuple[str, Tensor] | None = None,
    font: Callable[[int], Font] | None = None,
) -> Image.Image:
    """Draw one picture of each side, uint8 ``[height, width, 3]``, side by side, with lines of text below.

    ``control`` is the title of a third side and its picture. ``font`` returns one of a size in pixels; Pillow's own
    needs Pillow 10.1.
    """
    face = (font or ImageFont.load_default)(_TEXT)
    gain = difference_gain(baseline, optimized)
    difference = ((baseline.int() - optimized.int()).abs() * gain).clamp(0, 255).byte()
    columns = [("baseline", baseline), ("optimized", optimized)]
    columns += [(f"difference x {gain}" if gain else "no difference", difference), *([control] if control else [])]
    width, height = _shown_size(baseline.shape[1], baseline.shape[0])
    total, line = _GAP + len(columns) * (width + _GAP), round(1.4 * _TEXT)
    per_line = max(10, int((total - 2 * _GAP) / (0.62 * _TEXT)))  # of the widest common letters
    text = [part for one in lines for part in textwrap.wrap(one, per_line)]
    bottom = 2 * _GAP + line + height
    sheet = Image.new("RGB", (total, bottom + len(text) * line + _GAP), _PAPER)
    draw = ImageDraw.Draw(sheet)
    # Small pixels grow by a whole factor; large pictures shrink smoothly.
    method = Image.Resampling.NEAREST if width >= baseline.shape[1] else Image.Resampling.LANCZOS
    for number, (title, picture) in enumerate(columns):
        left = _GAP + number * (width + _GAP)
        draw.text((left, _GAP // 2), title, fill=_INK, font=face)
        sheet.paste(Image.fromarray(picture.numpy()).resize((width, height), method), (left, _GAP + line))
    for number, one in enumerate(text):
        draw.text((_GAP, bottom + number * line), one, fill=_INK, font=face)
    return sheet


def difference_gain(baseline: Tensor, optimized: Tensor) -> int:
    """Return the largest power of two, up to 64, that a difference can be amplified by; 0 if there is none.

    One value in a thousand may saturate, so that a few edges do not hide everything else.
    """
    differences = (baseline.int() - optimized.int()).abs().flatten()
    if not differences.any():
        return 0
    size = int(differences.kthvalue(max(1, round(differences.numel() * 0.999))).values)
    return next((gain for gain in _GAINS if size * gain <= 255), 1)


def spread(count: int, most: int, always: int = 0) -> list[int]:
    """Return ``most`` of ``count`` indices or fewer, first and last among them, and one that is ``always`` there."""
    if count <= most:
        return list(range(count))
    return sorted({always, *(round(row * (count - 1) / (most - 1)) for row in range(most))})


def side_by_side(left: Tensor, right: Tensor) -> list[Image.Image]:
    """Return the frames of two videos, uint8 ``[frames, height, width, 3]``, beside each other, each small."""
    gap = left.new_zeros(*left.shape[:2], max(1, left.shape[2] // 50), 3)
    both = torch.cat([left, gap, right], 2).numpy()
    scale = min(1.0, _SMALLEST / max(left.shape[1:3]))
    size = (round(both.shape[2] * scale), max(1, round(both.shape[1] * scale)))
    return [Image.fromarray(frame).resize(size, Image.Resampling.BILINEAR) for frame in both]


def _shown_size(width: int, height: int) -> tuple[int, int]:
    longer = max(width, height)
    if longer < _SMALLEST:
        factor = -(-_SMALLEST // longer)
        return width * factor, height * factor
    shrink = min(1.0, _LARGEST / longer)
    # At least wide enough for a title, also where the picture is a tall strip.
    return max(_SMALLEST // 2, round(width * shrink)), max(1, round(height * shrink))
