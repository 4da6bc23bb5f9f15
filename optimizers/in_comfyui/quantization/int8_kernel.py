"""The int8 product: comfy-kitchen's, and on processors its operations a few hundred tokens at a time.

So what one pass writes is in the cache for the next. Int32 sums are exact, and with the same scales in the same order
both give the same bits.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from ...quantization.rounding import quantize_rows

ON_PROCESSOR, ELSEWHERE = "torch._int_mm in chunks", "comfy-kitchen"
"""Names for reports and the file of times."""

ROWS_PER_THREAD = 256
"""Tokens per chunk. On an AMX processor 64 was up to 1.4 times slower and 512 no quicker (320 to 10240 channels)."""


@lru_cache(maxsize=1)
def prefers_unsigned() -> bool:
    """Return whether to multiply unsigned numbers: on processors with VNNI but not AMX, where this torch can do it."""
    has = {name: getattr(torch.cpu, f"_is_{name}_supported", lambda: False)() for name in ("vnni", "amx_tile")}
    if not has["vnni"] or has["amx_tile"]:
        return False
    try:
        torch._int_mm(torch.ones(32, 32, dtype=torch.uint8), torch.ones(32, 32, dtype=torch.int8))
    except (RuntimeError, NotImplementedError):
        return False
    return True


def on_processor(x: Tensor, values: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    """Return ``[..., out]`` in the dtype of ``x`` ``[..., in]`` for int8 ``values`` ``[out, in]``, a scale for each."""
    tokens = x.reshape(-1, x.shape[-1])
    out = tokens.new_empty(len(tokens), len(values))
    columns, scale = values.t(), scale.reshape(1, -1)
    # VNNI multiplies unsigned with signed numbers: tokens + 128, and 128 times the sum of each weight row off again.
    correction = values.sum(1, dtype=torch.int32).mul_(128) if prefers_unsigned() else None
    rows = ROWS_PER_THREAD * torch.get_num_threads()
    for start in range(0, len(tokens), rows):
        quantized, token_scale = quantize_rows(tokens[start : start + rows])
        if correction is None:
            sums = torch._int_mm(quantized, columns)
        else:
            sums = torch._int_mm(quantized.bitwise_xor_(-128).view(torch.uint8), columns).sub_(correction)
        part = out[start : start + rows].copy_(sums.float().mul_(token_scale * scale))
        if bias is not None:
            part.add_(bias)
    return out.reshape(*x.shape[:-1], len(values))


# torch.compile sees one operator that it does not look into: no graph break, the same bits as without it.
@torch.library.custom_op("paceline::int8_linear", mutates_args=())
def as_operator(x: Tensor, values: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    """Compute the product on any device."""
    if x.device.type == "cpu":
        return on_processor(x, values, scale, bias)
    from comfy_kitchen import int8_linear

    result: Tensor = int8_linear(x.contiguous(), values, scale, bias, x.dtype)
    return result


@as_operator.register_fake
def shape_of_linear(x: Tensor, values: Tensor, *rest: object) -> Tensor:
    """Return an empty tensor of the output's shape and dtype for a weight ``[out, in]``, for torch.compile."""
    return x.new_empty(*x.shape[:-1], values.shape[0])
