"""Half precision and int8 in little time on processors without instructions for them.

Without AVX-512, torch takes 90 times as long for a convolution in half precision as for one in single precision, and 20
times as long for a product of int8. Here such convolutions are computed in single precision and rounded once, and such
products in pieces that single precision holds exactly. It is for tests: they compare pictures, not seconds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

CONVOLUTIONS = ("_slow_conv2d_forward", "slow_conv3d_forward", "slow_conv_transpose2d")
EXACT = 1024
"""Of so many products of two int8 single precision holds the sum exactly."""

_kept: list[Any] = []  # torch.library.Library objects: what they put in goes with them


def install() -> None:
    """Put both into torch, once in a process."""
    import torch

    if _kept or not hasattr(torch.library, "get_kernel"):
        return
    library = torch.library.Library("aten", "IMPL", "CPU")
    _kept.append(library)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that kernels of torch's own are replaced
        for name in CONVOLUTIONS:
            library.impl(name, _in_single_precision(name), with_keyset=True)
        if not torch.cpu._is_vnni_supported():
            library.impl("_int_mm", _product)


def _in_single_precision(name: str) -> Callable[..., Any]:
    import torch

    kernel = torch.library.get_kernel(f"aten::{name}", "CPU")

    def convolution(keys: Any, image: Any, *others: Any) -> Any:
        if image.dtype not in (torch.float16, torch.bfloat16):
            return kernel.call_boxed(keys, image, *others)
        single = (one.float() if isinstance(one, torch.Tensor) else one for one in (image, *others))
        return kernel.call_boxed(keys, *single).to(image.dtype)

    return convolution


def _product(left: Any, right: Any) -> Any:
    import torch

    made = torch.zeros(left.shape[0], right.shape[1], dtype=torch.int32)
    for begin in range(0, left.shape[1], EXACT):
        piece = slice(begin, begin + EXACT)
        made += (left[:, piece].float() @ right[piece].float()).int()
    return made
