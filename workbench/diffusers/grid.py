"""The same prompts and seeds drawn by several variants, side by side as one picture, with their distances."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from ...core.errors import InvalidSetting
from ...optimizers.hosts.diffusers.api import optimize
from ..measurement.quality import Distance, compare_pictures, to_8_bit
from .pipelines import NamedPipeline
from .variants import Variant

_SIDE, _GAP, _LINE = 256, 12, 20
_INK, _PALE, _PAPER = (32, 33, 36), (110, 114, 122), (255, 255, 255)


def read_prompts(file: Path) -> list[str]:
    """Return the prompts of a text file, one a line, without empty lines and # comments; `InvalidSetting` if none."""
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(
            f"The prompts cannot be read: {error}.", "Give a text file with one prompt a line."
        ) from error
    prompts = [line for line in lines if line and not line.startswith("#")]
    if not prompts:
        raise InvalidSetting(f"{file} has no prompt.", "Write one prompt a line.")
    return prompts


def draw_all(
    pipeline: NamedPipeline, variant: Variant, prompts: Sequence[str], size: int, steps: int, seed: int
) -> Tensor:
    """Return uint8 pictures ``[prompts, height, width, 3]``: each prompt alone, seeds counted up from ``seed``."""
    pictures = []
    with optimize(pipeline.pipe, *variant.settings):
        for number, prompt in enumerate(prompts):
            made = pipeline.call([prompt], size, steps, seed + number, output_type="pt")
            # BCHW -> BHWC; DeepFloyd IF gives -1 to 1 when it is asked for tensors.
            made = made / 2 + 0.5 if pipeline.name in ("if-1", "if-2") else made
            pictures.append(to_8_bit(made.permute(0, 2, 3, 1)))
    return torch.cat(pictures)


def distances(pictures: Tensor, baseline: Tensor) -> list[Distance]:
    """Return the distance of each picture from the baseline's."""
    return [compare_pictures(a[None], b[None]) for a, b in zip(pictures, baseline, strict=True)]


def sheet(
    columns: Sequence[tuple[str, Tensor]], prompts: Sequence[str], title: str, lines: Sequence[str]
) -> Image.Image:
    """Return the grid: a row for each prompt, a column for each variant, the first being the baseline.

    ``columns`` are name and uint8 pictures ``[prompts, height, width, 3]`` of each variant.
    """
    fonts = ImageFont.load_default(20), ImageFont.load_default(13)
    row_height = _SIDE + 2 * _LINE + _GAP
    top = 44 + _LINE * len(lines) + _LINE
    width = max(640, _GAP + len(columns) * (_SIDE + _GAP))
    image = Image.new("RGB", (width, top + len(prompts) * row_height), _PAPER)
    draw = ImageDraw.Draw(image)
    draw.text((_GAP, 10), title, _INK, fonts[0])
    for number, line in enumerate(lines):
        draw.text((_GAP, 40 + number * _LINE), line, _PALE, fonts[1])
    for place, (name, pictures) in enumerate(columns):
        left = _GAP + place * (_SIDE + _GAP)
        draw.text((left, top - _LINE), name, _INK, fonts[1])
        found = distances(pictures, columns[0][1])
        for row, picture in enumerate(pictures):
            y = top + row * row_height
            shown = Image.fromarray(picture.numpy()).resize((_SIDE, _SIDE), Image.Resampling.LANCZOS)
            image.paste(shown, (left, y))
            draw.text((left, y + _SIDE + 2), prompts[row] if place == 0 else str(found[row]), _PALE, fonts[1])
    return image
