"""Put pictures side by side, with titles."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image, ImageChops, ImageDraw, ImageFont

_GAP, _TITLE = 8, 26
_INK, _PAPER = (30, 30, 30), (255, 255, 255)


def amplified_difference(picture: Image.Image, reference: Image.Image, gain: float = 4.0) -> Image.Image:
    """Return ``|picture - reference| * gain``; black where they are equal."""
    difference = ImageChops.difference(picture.convert("RGB"), reference.convert("RGB"))
    return difference.point(lambda value: min(255, round(value * gain)))


def side_by_side(columns: Sequence[tuple[str, Sequence[Image.Image]]], cell: int) -> Image.Image:
    """Return one picture with a titled column for each entry; all columns have the same number of pictures.

    Args:
        columns: title and pictures, top to bottom.
        cell: width and height in pixels at which each picture is shown.
    """
    rows = len(columns[0][1])
    width = _GAP + len(columns) * (cell + _GAP)
    height = _TITLE + rows * (cell + _GAP) + _GAP
    sheet = Image.new("RGB", (width, height), _PAPER)
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=14)
    for number, (title, pictures) in enumerate(columns):
        left = _GAP + number * (cell + _GAP)
        draw.text((left, 5), title, fill=_INK, font=font)
        for row, picture in enumerate(pictures):
            # Small pixel art grows by whole pixels; photographs shrink smoothly.
            method = Image.Resampling.NEAREST if picture.width <= cell else Image.Resampling.LANCZOS
            sheet.paste(picture.convert("RGB").resize((cell, cell), method), (left, _TITLE + row * (cell + _GAP)))
    return sheet
