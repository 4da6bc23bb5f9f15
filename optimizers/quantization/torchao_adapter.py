"""The only file that knows torchao, and only its current interface. The pack works without it."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any

from torch import Tensor

_found: list[Any] = []  # torch.compile looks through lru_cache and would meet the import, which it cannot trace


def _product() -> Any:
    if not _found:
        _found.append(import_module("torchao.kernel.intmm").int_scaled_matmul)
    return _found[0]


@lru_cache(maxsize=1)
def missing() -> str | None:
    """Return why torchao's int8 product cannot be used, or None."""
    try:
        _product()
    except ImportError:
        return "torchao is not installed"
    except AttributeError:
        return "this torchao has no kernel.intmm.int_scaled_matmul"
    return None


def scaled_product(values: Tensor, columns: Tensor, scale: Tensor) -> Tensor:
    """Return ``values @ columns * scale`` in float32.

    Args:
        values: int8 ``[tokens, in]``.
        columns: int8 ``[in, out]``.
        scale: float32 ``[tokens, 1]``.
    """
    result: Tensor = _product()(values.contiguous(), columns.contiguous(), scale)
    return result
