"""The order in memory in which images are handed to convolutions."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import torch

from .calls import Function

T = TypeVar("T")

_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def channels_last(value: T) -> T:
    """Return ``value`` in memory order ``[batch, (frames,) height, width, channels]`` if it is an image or a video.

    Only the order in memory changes: shape, values and dtype stay, and so does the caller's own tensor. Convolutions
    and what follows them keep the order they are given, so converting the input converts all activations. What is no
    floating point tensor of 4 or 5 dimensions is returned as it is.
    """
    if isinstance(value, torch.Tensor) and value.ndim in _FORMATS and value.is_floating_point():
        return cast(T, value.contiguous(memory_format=_FORMATS[value.ndim]))
    return value


def first_channels_last(function: Function, image: object, *args: object, **kwargs: object) -> Any:
    """Run ``function`` on ``image`` with its channels last."""
    return function(channels_last(image), *args, **kwargs)


def without_gaps(value: T) -> T:
    """Return ``value`` with its elements side by side in memory if it is an image or a video that is a part of another.

    One with its channels last stays so. What is no tensor of 4 or 5 dimensions is returned as it is.
    """
    if not isinstance(value, torch.Tensor) or value.ndim not in _FORMATS:
        return value
    return value if value.is_contiguous(memory_format=_FORMATS[value.ndim]) else cast(T, value.contiguous())
