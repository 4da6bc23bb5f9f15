"""8-bit pictures, as they are saved: how far they are apart, and the sheet that shows it with the verdict below.

RMSE is judged (``core/choices.py``); PSNR and SSIM are told beside it.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import TypeVar

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from ..optimizers.core.errors import InvalidSetting

Picture = TypeVar("Picture")

_WINDOW = 11
"""Side of SSIM's window in pixels (Wang et al. 2004, section III-B)."""

_MOST_DRAWS = 5
"""Five draws give ten pairs, enough for an average."""


@dataclass(frozen=True)
class Distance:
    """Distance between pictures and their references, averaged over the batch.

    Attributes:
        rmse: root mean square error of all values, 1 being the whole range from black to white.
        psnr: of that error in dB; None for equal pictures, where it is infinite.
        ssim: 1 for equal pictures; None for pictures smaller than its window.
        contrast: of the references, the standard deviation of their values.
    """

    rmse: float
    psnr: float | None
    ssim: float | None
    contrast: float = 0.0

    def __str__(self) -> str:
        if self.psnr is None:
            return "the same to the last bit"
        ssim = "" if self.ssim is None else f", SSIM {self.ssim:.3f}"
        return f"PSNR {self.psnr:.1f} dB{ssim}"


def to_8_bit(images: Tensor) -> Tensor:
    """Return images ``[batch, height, width, channels]`` in [0, 1] as bytes, rounded down as ComfyUI saves them."""
    return images.detach().float().nan_to_num().mul(255.0).clamp(0, 255).to("cpu", torch.uint8)


def no_picture(whose: str, pictures: Tensor, finite: Tensor | None = None) -> str:
    """Return the fault of the first of ``pictures`` (uint8, as above) that shows nothing; empty if none has a fault.

    ``whose`` names them in sentences, e.g. "The optimized image"; ``finite`` tells for each if its values were finite.
    """
    for number, picture in enumerate(pictures, 1):
        name = f"{whose} {number} of {len(pictures)}" if len(pictures) > 1 else whose
        if finite is not None and not finite[number - 1]:
            return f"{name} has values that are not numbers (NaN or infinite)"
        if picture.amax() == picture.amin():
            return f"{name} is one flat colour"
    return ""


def seed_change(groups: Iterable[Sequence[Picture]], apart: Callable[[Picture, Picture], list[Distance]]) -> Distance:
    """Return how far pictures from different seeds are apart: the average over pairs of draws.

    Each group holds the draws of one prompt. Of more than ``_MOST_DRAWS`` the first ones are compared; a single one
    with itself, so that its contrast is the unit. ``apart`` returns the distance of each picture.
    """
    known = [draws[:_MOST_DRAWS] for draws in groups]
    pairs = [pair for draws in known for pair in combinations(draws, 2)] or [(one, one) for one in known[0]]
    return average([one for pair in pairs for one in apart(*pair)])


def distances(pictures: Tensor, references: Tensor) -> list[Distance]:
    """Return the distance of each of uint8 ``[batch, height, width, channels]``; `InvalidSetting` if sizes differ."""
    if pictures.shape != references.shape:
        raise InvalidSetting(
            f"Pictures of the shape {list(pictures.shape)} cannot be compared with those of {list(references.shape)}.",
            "Both sides must give pictures of the same number and size.",
        )
    found = []
    for picture, reference in zip(pictures, references, strict=True):  # one at a time: a video is long
        # HWC -> 1CHW
        a, b = (image.permute(2, 0, 1)[None].double() / 255.0 for image in (picture, reference))
        similarity = structural_similarity(a, b) if min(a.shape[-2:]) >= _WINDOW else None
        found.append(of_error((a - b).square().mean().item(), similarity, b.std(correction=0).item()))
    return found


def average(found: Sequence[Distance]) -> Distance:
    """Return the distance of a batch, which has at least one picture."""
    similarities = [one.ssim for one in found if one.ssim is not None]
    error = fmean(one.rmse**2 for one in found)
    return of_error(error, fmean(similarities) if similarities else None, fmean(one.contrast for one in found))


def of_error(error: float, similarity: float | None, contrast: float = 0.0) -> Distance:
    """Return the distance of a mean square error."""
    return Distance(math.sqrt(error), None if error == 0 else -10 * math.log10(error), similarity, contrast)


def structural_similarity(a: Tensor, b: Tensor) -> float:
    """Return the mean SSIM of images ``[batch, channels, height, width]`` in [0, 1], sides of at least 11 pixels.

    Wang, Bovik, Sheikh, Simoncelli: Image quality assessment (2004): a Gaussian window with sigma 1.5, K1 = 0.01,
    K2 = 0.03, statistics of the whole window (not of a sample); channels count alike, windows that stick out are left
    out. The same as scikit-image's with ``gaussian_weights=True, sigma=1.5, use_sample_covariance=False``. In float64,
    as variances are differences of squares.
    """
    offsets = torch.arange(_WINDOW, dtype=a.dtype, device=a.device) - _WINDOW // 2
    weights = torch.exp(-offsets.square() / (2 * 1.5**2))
    weights = weights / weights.sum()

    def blur(image: Tensor) -> Tensor:
        for axis in (2, 3):
            image = image.unfold(axis, _WINDOW, 1) @ weights
        return image

    mean_a, mean_b = blur(a), blur(b)
    variance_a, variance_b = blur(a * a) - mean_a**2, blur(b * b) - mean_b**2
    covariance = blur(a * b) - mean_a * mean_b
    c1, c2 = 0.01**2, 0.03**2
    luminance = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
    structure = (2 * covariance + c2) / (variance_a + variance_b + c2)
    return float((luminance * structure).mean())


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
