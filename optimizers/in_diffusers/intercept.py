"""Change one call of torch's scaled dot-product attention from outside of the code that makes it.

Every attention processor of diffusers, and those of others (IP-Adapter, PAG), ends in
``torch.nn.functional.scaled_dot_product_attention``. A torch function mode around a processor is given that one call.
Uncompiled it costs some 35 microseconds for each attention layer; torch.compile traces through it and leaves nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence

import torch
import torch.nn.functional as F
from torch.nn import Module
from torch.overrides import TorchFunctionMode

from ..core.not_copied import Args, Function, Kwargs

SdpaFunction = Callable[..., torch.Tensor]
"""Takes what ``scaled_dot_product_attention`` takes: three tensors by place, everything else by name."""

_TENSORS = ("query", "key", "value")
_OPTIONS = ("attn_mask", "dropout_p", "is_causal")


class AttentionIntercept(TorchFunctionMode):
    """Hand calls of ``scaled_dot_product_attention`` to ``attend``, inside of which the mode is off."""

    def __init__(self, attend: SdpaFunction) -> None:
        super().__init__()
        self.attend = attend
        self.reached = False

    def __torch_function__(
        self, func: Function, types: Iterable[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        if func is F.scaled_dot_product_attention:
            self.reached = True
            # Query, key and value by place, and the options by name: callers pass either in either way.
            options = {**dict(zip(_OPTIONS, args[3:], strict=False)), **(kwargs or {})}
            return self.attend(*args[:3], *(options.pop(name) for name in _TENSORS[len(args) :]), **options)
        if func is torch.Tensor.unflatten:
            # torch.compile cannot trace this method's call of its base class out of a mode (torch 2.13).
            return _unflatten(*args, **(kwargs or {}))  # type: ignore[arg-type]
        return func(*args, **(kwargs or {}))


def intercepted(layer: Module, forward: Function, attend: SdpaFunction, missed: Callable[[], None]) -> Function:
    """Return ``forward`` of a layer with its attention computed by ``attend``; ``missed`` is told where it was not.

    Not where a hook of diffusers may have answered for it, as its caches do.
    """
    mode = AttentionIntercept(attend)

    @functools.wraps(forward)
    def run(*args: object, **options: object) -> object:
        mode.reached = False
        with mode:
            result = forward(*args, **options)
        if not mode.reached and not getattr(getattr(layer, "_diffusers_hook", None), "hooks", None):
            missed()
        return result

    return run


def _unflatten(tensor: torch.Tensor, dim: int, sizes: Sequence[int]) -> torch.Tensor:
    dim = dim % tensor.dim()
    return tensor.reshape(*tensor.shape[:dim], *sizes, *tensor.shape[dim + 1 :])
