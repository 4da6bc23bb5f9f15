"""The order in memory in which images are handed to convolutions."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import torch

from .not_copied import Function

T = TypeVar("T")

_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def channels_last(value: T) -> T:
    """Return an image or a video in memory order ``[batch, (frames,) height, width, channels]``, all else unchanged.

    Shape, values and dtype stay, and so does the caller's own tensor. Convolutions and what follows them keep the order
    they are given, so converting the input converts all activations.
    """
    if isinstance(value, torch.Tensor) and value.ndim in _FORMATS and value.is_floating_point():
        return cast(T, value.contiguous(memory_format=_FORMATS[value.ndim]))
    return value


def first_channels_last(function: Function, image: object, *args: object, **kwargs: object) -> Any:
    """Run ``function`` on ``image`` with its channels last."""
    return function(channels_last(image), *args, **kwargs)


def without_gaps(value: T) -> T:
    """Return an image or a video that is a part of another with its elements side by side in memory.

    One with its channels last stays so. Anything else is returned as it is.
    """
    if not isinstance(value, torch.Tensor) or value.ndim not in _FORMATS:
        return value
    return value if value.is_contiguous(memory_format=_FORMATS[value.ndim]) else cast(T, value.contiguous())
