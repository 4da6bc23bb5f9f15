"""What nodes that change pictures do to those of a trained model.

The limits are about half as far again as what was measured; benchmarks/peers.py and quantization.py have more pictures.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import Any
from unittest.mock import patch

import pytest
import torch
from cases import often
from comfy_host import in_process

PAIRS = (("red heart flat", 1000), ("green cat tile", 1001))

Distance = Callable[[Any], float]


@pytest.fixture(scope="module")
def distance(icons: Any) -> Distance:
    """Return how far a MODEL's pictures are from the plain model's in the mean, as a share of a seed change."""
    model, encode = icons

    def draw(changed: Any, prompt: str, seed: int) -> torch.Tensor:
        blank = torch.zeros(1, 4, 32, 32)
        with torch.inference_mode():
            return in_process.sample(changed, encode(prompt), encode(""), blank, seed, 12, 3.0, "euler", "normal")

    plain = {pair: draw(model, *pair) for pair in PAIRS}
    apart = {(prompt, seed): draw(model, prompt, seed + 500) for prompt, seed in PAIRS}

    def measure(changed: Any) -> float:
        return fmean(
            float((draw(changed, *pair) - plain[pair]).norm() / (apart[pair] - plain[pair]).norm()) for pair in PAIRS
        )

    return measure


@pytest.mark.parametrize(
    ("method", "ratio", "most"),
    often([("kv_downsample", 0.75, 0.1)], [("merge", 0.5, 0.2), ("kv_downsample", 0.75, 0.1)], several=True),
)
def test_fewer_tokens_keep_the_picture(studio, icons, distance, method, ratio, most):
    assert distance(studio.tome(icons[0], method=method, ratio=ratio)) < most


def test_int8_keeps_the_picture_and_the_layers_that_embed(studio, icons, distance):
    from paceline.optimizers.in_comfyui.run.stack import stack_of
    from paceline.optimizers.quantization.layer_times import Timing, Timings

    # Its layers are too small to gain, so that the choice is by error and by kind of layer alone.
    with patch.object(Timings, "time", lambda *_: Timing(2.0, 1.0)):
        model = studio.run("PacelineQuantizeInt8", model=icons[0], preset="quality")
    choices = stack_of(model).techniques[0].policy.choices.all
    kept = {choice.reason for choice in choices if choice.weight is None}
    assert sum(choice.weight is not None for choice in choices) > 50
    assert "it embeds or modulates: little work, much effect" in kept
    assert distance(model) < 0.02
