"""Scales and rounding, against their definitions."""

from __future__ import annotations

import pytest
import torch
from paceline.optimizers.quantization.rounding import quantize_rows

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_rows(dtype):
    x = torch.zeros(3, 8, dtype=dtype)
    x[1] = torch.finfo(dtype).tiny
    x[2] = torch.finfo(dtype).max
    values, scale = quantize_rows(x)
    assert (values[0] == 0).all() and scale.isfinite().all()
    assert (values[2] >= 126).all()  # in 16 bits the scale itself is rounded
