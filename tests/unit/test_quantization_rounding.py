"""Scales and rounding, against their definitions."""

from __future__ import annotations

import pytest
import torch
from paceline.optimizers.quantization.rounding import quantize_rows, quantize_weight

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


def test_a_weight_comes_back_and_needs_a_quarter():
    weight = random(48, 32)
    quantized = quantize_weight(weight)
    restored = quantized.values * quantized.scale
    assert ((restored - weight).norm() / weight.norm()) < 0.01
    assert quantized.nbytes == 48 * 32 + 48 * 4
