"""The captions and the weights of the icon models; how these were trained is in weights/README.md."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from safetensors import safe_open
from torch import Tensor

WEIGHTS = Path(__file__).resolve().parents[1] / "weights"
HUES = ("red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink")
SHAPES = (
    "heart", "star", "house", "cat", "dog", "fish", "pine", "flower", "car", "plane", "cloud", "umbrella", "key",
    "bell", "flag", "apple", "leaf", "crown", "moon", "rocket", "anchor", "ghost", "bird", "duck", "rabbit", "turtle",
    "mushroom", "cactus", "carrot", "cherry", "cup", "skull",
)  # fmt: skip
STYLES = ("flat", "outline", "shaded", "tile")
MOVING = ("heart", "star", "house", "fish", "moon", "umbrella", "key", "cloud")
"""Shapes of the video model."""
MOTIONS = ("left", "right", "up", "down", "turn", "grow")
FRAMES = 8
SIDE = 64
"""Of the pictures that the image transformer draws."""


def never_trained(shapes: Sequence[str], last: Sequence[str]) -> list[str]:
    """Return the captions that a model was not trained on: one in eight, never a whole colour, shape or ``last``."""
    return [
        f"{hue} {shape} {word}"
        for i, shape in enumerate(shapes)
        for j, hue in enumerate(HUES)
        for k, word in enumerate(last)
        if (i + j + 2 * k) % 8 == 0
    ]


def side(weights: Path) -> int:
    """Return the side of the pictures that a model was trained on, in pixels, from its file."""
    with safe_open(weights, "pt") as file:
        metadata = file.metadata()
    return int(metadata.get("side") or json.loads(metadata["config"])["image_size"])  # in older files, of a UNet


def as_of(level: Tensor, times: float) -> Tensor:
    """Return the noise level of flow matching at which noise is so many times as strong beside the picture."""
    return times * level / (1 + (times - 1) * level)
