"""An int8 linear layer for processors, made of torch's own operators.

A few hundred tokens at a time, what one pass writes is still in the cache for the next. The operations and their order
are comfy-kitchen's, and every token's result is the same, bit for bit.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from .rounding import quantize_rows, rotate

ROWS_PER_THREAD = 256
"""Tokens per chunk. On an AMX processor 64 was up to 1.4 times slower and 512 no quicker (320 to 10240 channels)."""


def chunked_linear(x: Tensor, values: Tensor, scale: Tensor, bias: Tensor | None, rotation: int = 0) -> Tensor:
    """Return ``x @ (values * scale).T + bias`` with ``x`` ``[..., in]`` quantised for each token.

    ``values``: int8 ``[out, in]``; ``scale``: float32 ``[out, 1]``, or one number for all; ``bias``: ``[out]``;
    ``rotation``: size of the groups of input channels to rotate first, or 0.
    """
    # A tensor of another class has no values: torch.compile or make_fx is tracing.
    if torch.compiler.is_compiling() or type(x) is not Tensor:
        result: Tensor = _as_operator(x, values, scale, bias, rotation)
        return result
    return _chunked(x, values, scale, bias, rotation)


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


def _chunked(x: Tensor, values: Tensor, scale: Tensor, bias: Tensor | None, rotation: int) -> Tensor:
    tokens = rotate(x, rotation).reshape(-1, x.shape[-1])
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
        part = out[start : start + rows]
        if out.dtype == torch.float32:
            torch.mul(token_scale, scale, out=part)
            part.mul_(sums)
        else:
            part.copy_(sums.float().mul_(token_scale * scale))
        if bias is not None:
            part.add_(bias)
    return out.reshape(*x.shape[:-1], len(values))


# torch.compile sees one operator that it does not look into: no graph break, the same bits as without it.
@torch.library.custom_op("paceline::int8_linear", mutates_args=())
def _as_operator(x: Tensor, values: Tensor, scale: Tensor, bias: Tensor | None, rotation: int) -> Tensor:
    return _chunked(x, values, scale, bias, rotation)


@_as_operator.register_fake
def shape_of_linear(x: Tensor, values: Tensor, *rest: object) -> Tensor:
    """Return an empty tensor of the output's shape and dtype for a weight ``[out, in]``, for torch.compile."""
    return x.new_empty(*x.shape[:-1], values.shape[0])
