"""The pictures and words of the icon model: drawn anew for every batch from the shapes of an icon font.

A caption names colour, shape and style, e.g. "red heart outline". Place, size, angle, light and the exact tint are not
in it, so two seeds give two pictures of one caption, and no picture is ever drawn twice: there is nothing to memorise.
Combinations are held out to see whether the model has learned words or pictures. A picture is premultiplied RGBA in
[-1, 1]: four channels, like a Stable Diffusion latent, so the models need no VAE.

The shapes are Material Design Icons by Pictogrammers (Apache-2.0).
"""

from __future__ import annotations

import colorsys
import json
import math
import re
import subprocess
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from comfy_host.paths import ROOT
from PIL import Image, ImageDraw, ImageFont
from safetensors import safe_open
from scipy.ndimage import distance_transform_edt
from torch import Tensor

PACKAGE = "@mdi/font"
VERSION = "7.4.47"
WEIGHTS = {
    name: ROOT / "benchmarks" / "weights" / f"{name}.safetensors"
    for name in ("icons32", "icons64", "icons64_lumina", "icons32_lumina_distilled", "icons_video")
}
"""Of the trained models."""
READ = ("package.json", "css/materialdesignicons.css", "fonts/materialdesignicons-webfont.ttf")
"""Files of the package."""
CREDIT = f"Material Design Icons by Pictogrammers, Apache-2.0 (npm {PACKAGE} {VERSION})"

# word -> name in the font. One solid shape each, that can be told from the others at 32 by 32 pixels.
SHAPES = {
    "heart": "heart", "star": "star", "house": "home", "cat": "cat", "dog": "dog-side", "fish": "fish",
    "pine": "pine-tree", "flower": "flower", "car": "car-side", "plane": "airplane", "cloud": "cloud",
    "umbrella": "umbrella", "key": "key", "bell": "bell", "flag": "flag", "apple": "food-apple", "leaf": "leaf",
    "crown": "crown", "moon": "moon-waning-crescent", "rocket": "rocket", "anchor": "anchor", "ghost": "ghost",
    "bird": "bird", "duck": "duck", "rabbit": "rabbit", "turtle": "turtle", "mushroom": "mushroom",
    "cactus": "cactus", "carrot": "carrot", "cherry": "fruit-cherries", "cup": "coffee", "skull": "skull",
}  # fmt: skip
HUES = {
    "red": 0.0, "orange": 0.075, "yellow": 0.145, "green": 0.34, "cyan": 0.5, "blue": 0.61, "purple": 0.76,
    "pink": 0.9,
}  # fmt: skip
STYLES = ("flat", "outline", "shaded", "tile")
PAD, NULL = "<pad>", "<null>"
TOKENS = 4
"""Length of every caption after padding."""

_GRID = 96
"""Side of a table of distances; it covers [-_REACH, _REACH] in units of half a shape's longer side."""
_REACH = 1.6


def side(weights: Path) -> int:
    """Return the side of the pictures that a model was trained on, in pixels, from its file."""
    with safe_open(weights, "pt") as file:
        metadata = file.metadata()
    return int(metadata.get("side") or json.loads(metadata["config"])["image_size"])  # in older files, of a UNet


def combinations(shapes: Iterable[str] = SHAPES, last: Iterable[str] = STYLES) -> tuple[list[str], list[str]]:
    """Return the captions to train on, and those held out: one in eight, never a whole colour, shape or ``last``."""
    trained: list[str] = []
    held_out: list[str] = []
    for i, shape in enumerate(shapes):
        for j, hue in enumerate(HUES):
            for k, word in enumerate(last):
                (held_out if (i + j + 2 * k) % 8 == 0 else trained).append(f"{hue} {shape} {word}")
    return trained, held_out


def vocabulary(captions: Iterable[str]) -> dict[str, int]:
    """Return the row of each word in the table of embeddings; the two special entries come first."""
    return {word: row for row, word in enumerate(dict.fromkeys([PAD, NULL, *" ".join(captions).split()]))}


def tokenize(caption: str, words: dict[str, int]) -> list[int]:
    """Return the ids of a caption's words, ``[TOKENS]``; the empty caption is the unconditional one."""
    ids = [words[word] for word in caption.split()] or [words[NULL]]
    return ids + [words[PAD]] * (TOKENS - len(ids))


def fetch(cache: Path) -> Path:
    """Return the unpacked npm package below `cache`; downloads the one named package the first time."""
    root = cache / f"mdi-font-{VERSION}"
    if not (root / READ[0]).is_file():
        cache.mkdir(parents=True, exist_ok=True)
        archive = cache / f"mdi-font-{VERSION}.tgz"
        if not archive.is_file():
            subprocess.run(["npm", "pack", f"{PACKAGE}@{VERSION}", "--silent"], cwd=cache, check=True)
        with tarfile.open(archive) as tar:
            for member in tar:
                member.name = member.name.removeprefix("package/")
                tar.extract(member, root, filter="data")
    return root


def distances(root: Path) -> Tensor:
    """Return signed distances to every shape's border ``[shapes, grid, grid]``, negative inside, in half shapes."""
    _, style, letters = (root / name for name in READ)
    css = style.read_text("utf-8")
    codes = dict(re.findall(r'\.mdi-([a-z0-9-]+)::before\s*{\s*content:\s*"\\([0-9A-F]+)"', css))
    font = ImageFont.truetype(str(letters), 400)
    tables = []
    for name in SHAPES.values():
        glyph = chr(int(codes[name], 16))
        left, top, right, bottom = font.getbbox(glyph)
        half = max(right - left, bottom - top) / 2
        side = round(2 * _REACH * half)
        picture = Image.new("L", (side, side))
        at = (side / 2 - (left + right) / 2, side / 2 - (top + bottom) / 2)
        ImageDraw.Draw(picture).text(at, glyph, fill=255, font=font)
        inside = np.asarray(picture) > 127
        distance = distance_transform_edt(~inside) - distance_transform_edt(inside)
        table = torch.from_numpy(distance / half).float()[None, None]
        tables.append(F.interpolate(table, (_GRID, _GRID), mode="area")[0, 0])
    return torch.stack(tables)


@dataclass(frozen=True)
class Nuisance:
    """What no caption says, one value for each picture ``[batch]``; all numbers are drawn by :meth:`random`."""

    size: Tensor
    angle: Tensor
    x: Tensor
    y: Tensor
    light: Tensor
    tint: Tensor

    @classmethod
    def random(cls, count: int, side: int) -> Nuisance:
        """Draw sizes, angles, places, directions of light and tints for pictures of ``side`` pixels."""
        u = torch.rand(6, count) * 2 - 1
        size = side * (0.38 + 0.06 * u[0])
        free = (side / 2 - 1.02 * size).clamp_min(0)
        return cls(size, 0.45 * u[1], free * u[2], free * u[3], math.pi * u[4], u[5])


class Icons:
    """Draws captions as pictures of so many pixels a ``side``; ``cache`` is the folder of the npm package."""

    def __init__(self, cache: Path, side: int, device: torch.device | str = "cpu") -> None:
        self.side, self.device = side, torch.device(device)
        self.captions, self.held_out = combinations()
        self._tables = distances(fetch(cache))[:, None].to(self.device)
        self._row = {shape: row for row, shape in enumerate(SHAPES)}

    def batch(self, count: int, **how: int) -> tuple[Tensor, list[str]]:
        """Return drawings of captions that chance has chosen, and these; ``how`` as of ``drawings``."""
        captions = [self.captions[number] for number in torch.randint(len(self.captions), (count,)).tolist()]
        return self.drawings(captions, **how), captions

    def drawings(self, captions: list[str]) -> Tensor:
        """Return a picture for each caption ``[batch, 4, side, side]``, all else drawn by chance."""
        with self.device:
            return self.draw(captions, Nuisance.random(len(captions), self.side))

    def draw(self, captions: list[str], nuisance: Nuisance) -> Tensor:
        """Return one latent for each caption ``[batch, 4, side, side]``."""
        hues, shapes, styles = zip(*(caption.split() for caption in captions), strict=True)
        distance = self._placed(torch.tensor([self._row[shape] for shape in shapes]), nuisance)
        tinted = zip(hues, nuisance.tint.tolist(), strict=True)
        colour = torch.tensor([_colour(hue, tint) for hue, tint in tinted])[..., None, None]
        steps = torch.arange(self.side) + 0.5 - self.side / 2
        y, x = torch.meshgrid(steps, steps, indexing="ij")
        along = nuisance.light.cos()[:, None, None] * x + nuisance.light.sin()[:, None, None] * y
        along = along / self.side  # about -0.7 to 0.7, towards the light
        pictures = torch.empty(len(captions), 4, self.side, self.side)
        for style in STYLES:
            rows = [row for row, found in enumerate(styles) if found == style]
            if rows:
                pictures[rows] = _DRAWN[style](distance[rows], colour[rows], along[rows], nuisance.size[rows])
        return pictures * 2 - 1

    def _placed(self, shapes: Tensor, nuisance: Nuisance) -> Tensor:
        """Return distances to the borders of moved, turned and scaled shapes, in pixels ``[batch, side, side]``."""
        cos, sin = nuisance.angle.cos(), nuisance.angle.sin()
        scale = self.side / 2 / nuisance.size / _REACH
        turn = torch.stack([torch.stack([cos, sin]), torch.stack([-sin, cos])]).permute(2, 0, 1)  # [batch, 2, 2]
        place = torch.stack([nuisance.x, nuisance.y], -1) / (self.side / 2)
        shift = -(turn @ place[..., None])
        moved = torch.cat([turn, shift], -1) * scale[:, None, None]
        grid = F.affine_grid(moved, [len(shapes), 1, self.side, self.side], align_corners=False)
        found = F.grid_sample(self._tables[shapes], grid, padding_mode="border", align_corners=False)
        return found[:, 0] * nuisance.size[:, None, None]


def _colour(hue: str, tint: float) -> tuple[float, float, float]:
    value = 0.82 if hue in ("green", "cyan") else 0.95
    return colorsys.hsv_to_rgb((HUES[hue] + 0.012 * tint) % 1.0, 0.82 + 0.1 * tint, value + 0.05 * tint)


def _opaque(colour: Tensor, distance: Tensor) -> Tensor:
    """Return a colour ``[batch, 3, 1 or height, 1 or width]`` as RGBA ``[batch, 4, height, width]``."""
    return torch.cat([colour.expand(-1, -1, *distance.shape[-2:]), torch.ones_like(distance)[:, None]], 1)


def _cover(distance: Tensor) -> Tensor:
    """Distance to a border in pixels -> share of each pixel inside ``[batch, 1, side, side]``."""
    return (0.5 - distance).clamp(0, 1)[:, None]


def _flat(distance: Tensor, colour: Tensor, along: Tensor, size: Tensor) -> Tensor:
    return _opaque(colour, distance) * _cover(distance)


def _outline(distance: Tensor, *more: Tensor) -> Tensor:
    return _flat((distance + 0.6).abs() - 0.9, *more)


def _shaded(distance: Tensor, colour: Tensor, along: Tensor, size: Tensor) -> Tensor:
    """Brighter towards the light and towards the middle, with a dark rim."""
    dome = (-distance / (0.3 * size[:, None, None])).clamp(0, 1)
    shade = (0.45 + 0.35 * dome + 0.6 * along)[:, None]
    lit = colour * shade.clamp(0, 1) + (1 - colour) * (shade - 0.7).clamp(0, 1)
    return _flat(distance, lit.clamp(0, 1), along, size)


def _tile(distance: Tensor, colour: Tensor, along: Tensor, size: Tensor) -> Tensor:
    """White on a coloured ground that gets darker away from the light."""
    ground = _opaque(colour * (0.8 + 0.35 * along)[:, None].clamp(0, 1), distance)
    return torch.lerp(ground, torch.ones(1), _cover(distance))


_DRAWN = {"flat": _flat, "outline": _outline, "shaded": _shaded, "tile": _tile}
