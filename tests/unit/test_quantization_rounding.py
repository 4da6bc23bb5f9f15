"""Scales, rounding and rotation, against definitions and against comfy-kitchen, whose bits they must give."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from paceline.core.errors import UnsupportedModel
from paceline.optimizers.quantization.rounding import (
    Int8Weight,
    quantize_rows,
    quantize_weight,
    rotate,
    with_row_scales,
)

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_rows(dtype):
    x = torch.zeros(3, 8, dtype=dtype)
    x[1] = torch.finfo(dtype).tiny
    x[2] = torch.finfo(dtype).max
    values, scale = quantize_rows(x)
    assert (values[0] == 0).all() and scale.isfinite().all()
    assert (values[2] >= 126).all()  # in 16 bits the scale itself is rounded


@pytest.mark.parametrize("rotation", [0, 16])
def test_a_weight_comes_back_and_needs_a_quarter(rotation):
    weight = random(48, 32)
    quantized = replace(quantize_weight(rotate(weight, rotation)), rotation=rotation)
    restored = rotate(quantized.values * quantized.scale, rotation)
    assert ((restored - weight).norm() / weight.norm()) < 0.01
    assert quantized.nbytes == 48 * 32 + 48 * 4


def from_file(rows=6, columns=16, scales=None, dtype=torch.int8, rotation=0):
    """A weight as a file can have it."""
    return Int8Weight(torch.ones(rows, columns, dtype=dtype), torch.ones(rows) if scales is None else scales, rotation)


@pytest.mark.parametrize(
    "scales", [torch.tensor(2.0), torch.tensor([2.0]), torch.full((6,), 2.0), torch.full((6, 1), 2.0)]
)
def test_a_weight_of_a_file_gets_one_scale_for_each_row(scales):
    weight = from_file(scales=scales.half())
    found = with_row_scales(weight, 6, 16)
    assert torch.equal(found.scale, torch.full((6, 1), 2.0)) and found.scale.is_contiguous()
    assert found.values is weight.values and found.rotation == 0


@pytest.mark.parametrize("rotation", [4, 16, 64, 4**7])
def test_a_file_may_have_any_rotation_of_a_power_of_four(rotation):
    assert with_row_scales(from_file(2, 4**7, rotation=rotation), 2, 4**7).rotation == rotation


@pytest.mark.parametrize(
    ("weight", "problem"),
    [
        (from_file(5), r"its weight is int8 \[5, 16\]"),
        (from_file(dtype=torch.uint8), r"its weight is uint8 \[6, 16\]"),
        (from_file(scales=torch.ones(2)), "it has 2 scales instead of 1 or 6"),
        (from_file(scales=torch.tensor([1.0] * 5 + [torch.inf])), r"one of its scales is infinite or no number\."),
        (from_file(scales=torch.tensor(torch.nan)), r"one of its scales is infinite or no number\."),
        (from_file(rotation=8), "its inputs cannot be rotated in groups of 8"),
        (from_file(rotation=1), "its inputs cannot be rotated in groups of 1"),
        (from_file(rotation=64), "its inputs cannot be rotated in groups of 64"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_damaged_weight_is_refused_in_words(weight, problem):
    with pytest.raises(UnsupportedModel, match=f"An int8 layer of this file, 16 -> 6 channels, is damaged: {problem}"):
        with_row_scales(weight, 6, 16)


def test_a_rotation_larger_than_any_is_refused():
    with pytest.raises(UnsupportedModel, match="in groups of 65536"):
        with_row_scales(from_file(1, 4**8, rotation=4**8), 1, 4**8)
