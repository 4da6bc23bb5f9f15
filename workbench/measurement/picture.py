"""The picture that a comparison shows: baseline, optimized, and what differs, with the verdict below."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

_LARGEST, _SMALLEST = 512, 256
"""Pixels on the longer side of a shown picture: larger ones are shrunk, smaller ones enlarged by whole pixels."""

_ROWS = 4
_GAP, _LINE = 16, 1.4
_PAPER, _INK, _PALE = (24, 24, 27), (244, 244, 245), (176, 176, 184)
_TITLE_SIZE, _HEADLINE_SIZE, _TEXT_SIZE = 18, 22, 16
_GAINS = (64, 32, 16, 8, 4, 2)


def comparison_sheet(
    baseline: Tensor,
    optimized: Tensor,
    headline: str,
    lines: Sequence[str] = (),
    control: tuple[str, Tensor] | None = None,
    farthest: int = 0,
    font: Callable[[int], Font] | None = None,
) -> Image.Image:
    """Draw the pictures, uint8 ``[batch, height, width, 3]``, side by side, with headline and smaller lines below.

    Of a larger batch, four are shown and the ``farthest``. ``control`` is the title of a third side and its pictures.
    ``font`` returns one of a size in pixels; Pillow's own needs Pillow 10.1.
    """
    font = font or ImageFont.load_default
    chosen = spread(baseline.shape[0], _ROWS, farthest)
    gain = difference_gain(baseline[chosen], optimized[chosen])
    height, width = baseline.shape[1:3]
    size = _shown_size(width, height)
    columns = [
        ("baseline", baseline[chosen]),
        ("optimized", optimized[chosen]),
        (f"difference x {gain}" if gain else "no difference", _difference(baseline[chosen], optimized[chosen], gain)),
    ]
    if control is not None:
        title, pictures = control
        difference = _difference(baseline[chosen], pictures[chosen], gain)
        columns += [(title, pictures[chosen]), (f"its difference x {gain}", difference)]
    total = _GAP + len(columns) * (size[0] + _GAP)
    text = [(line, _HEADLINE_SIZE, _INK) for line in _wrapped(headline, font(_HEADLINE_SIZE), total - 2 * _GAP)]
    for paragraph in lines:
        text += [(line, _TEXT_SIZE, _PALE) for line in _wrapped(paragraph, font(_TEXT_SIZE), total - 2 * _GAP)]
    top = _GAP + round(_TITLE_SIZE * _LINE)
    bottom = top + len(chosen) * (size[1] + _GAP)
    sheet = Image.new("RGB", (total, bottom + sum(round(points * _LINE) for _, points, _ in text) + _GAP), _PAPER)
    draw = ImageDraw.Draw(sheet)
    for number, (title, pictures) in enumerate(columns):
        left = _GAP + number * (size[0] + _GAP)
        draw.text((left, _GAP // 2), title, fill=_INK, font=font(_TITLE_SIZE))
        for row, picture in enumerate(pictures):
            # Small pixels grow by a whole factor; large pictures shrink smoothly.
            method = Image.Resampling.NEAREST if size[0] >= width else Image.Resampling.LANCZOS
            shown = Image.fromarray(picture.numpy()).resize(size, method)
            sheet.paste(shown, (left, top + row * (size[1] + _GAP)))
    at = bottom
    for line, points, colour in text:
        draw.text((_GAP, at), line, fill=colour, font=font(points))
        at += round(points * _LINE)
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


def _difference(baseline: Tensor, optimized: Tensor, gain: int) -> Tensor:
    return ((baseline.int() - optimized.int()).abs() * gain).clamp(0, 255).byte()


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


def _wrapped(text: str, font: Font, width: int) -> list[str]:
    lines, line = [], ""
    for word in text.split():
        longer = f"{line} {word}".strip()
        if line and font.getlength(longer) > width:
            lines.append(line)
            line = word
        else:
            line = longer
    return [*lines, line]
