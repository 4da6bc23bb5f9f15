"""Tell torch.compile which sizes will change, so that one graph serves all of them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def expect_changes(value: Any, *dimensions: int) -> Any:
    """Return ``value`` marked as changing its size in ``dimensions``; itself if it is no tensor with these."""
    if not isinstance(value, torch.Tensor) or value.ndim <= max(dimensions):
        return value
    mark: Any = torch._dynamo.maybe_mark_dynamic
    value = value.detach()  # the mark is an attribute of the tensor object: put it on one of our own
    for dimension in dimensions:
        if value.shape[dimension] > 1:  # torch compiles for a size of 1 on its own, whatever it is told
            mark(value, dimension)
    return value


def no_equal_sizes() -> AbstractContextManager[Any]:
    """Return a context in which torch takes two sizes that are equal by chance for two different ones.

    Else a square image would make its height and width one variable, and the next portrait would be compiled anew.
    """
    from torch.fx.experimental import _config

    config: Any = _config
    return config.patch(use_duck_shape=False) if hasattr(config, "use_duck_shape") else nullcontext()
