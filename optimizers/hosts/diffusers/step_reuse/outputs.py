"""Outputs of a denoiser in the calls of one evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..run import PipelineCall
from .prediction import Prediction


class LastOutputs:
    """Outputs of the denoiser in the last evaluation, by the order of its calls.

    Attributes:
        given: whether a network's last output was returned again in this evaluation.
    """

    def __init__(self) -> None:
        self.given = False
        self._called = 0
        self._kept: list[tuple[torch.Size, Any]] = []

    def end(self) -> None:
        self._called, self.given = 0, False

    def again(self, call: PipelineCall) -> Any:
        """Return the denoiser's output in the same call of the last evaluation; None if that was another one."""
        number = self._called
        if number >= len(self._kept) or self._kept[number][0] != call.sample.shape:
            return None
        self._called, self.given = number + 1, True
        result = self._kept[number][1]
        return _with(result, _tensor(result).clone())

    def keep(self, call: PipelineCall, result: Any) -> bool:
        """Keep the denoiser's output; return whether it can be returned again: whether it is one tensor."""
        tensor = _tensor(result)
        if tensor is None:
            return False
        del self._kept[self._called :]
        self._kept.append((call.sample.shape, _with(result, tensor.detach().clone())))
        self._called += 1
        return True

    def positive(self, at: Prediction, latent: Tensor) -> Tensor | None:
        """Return the positive prediction of an evaluation with both passes; None if they are not from one call."""
        if len(self._kept) != 1:
            return None
        asked, result = self._kept[0]
        output = _tensor(result)
        if output.shape != (2 * len(latent), *latent.shape[1:]) or not _is_wider(asked, output.shape):
            return None
        return at.denoised(latent, output.chunk(2)[1])

    @property
    def bytes(self) -> int:
        return sum(int(_tensor(result).nbytes) for _, result in self._kept)


def _is_wider(asked: torch.Size, output: torch.Size) -> bool:
    """Return whether the input is the latent, or has more channels behind it."""
    return asked == output or (len(asked) == 4 and asked[1] > output[1] and asked[2:] == output[2:])


def _tensor(result: Any) -> Any:
    """Return the one tensor of a result; None where there are others beside it."""
    values = result.values() if isinstance(result, Mapping) else result if isinstance(result, (tuple, list)) else ()
    tensors = [value for value in values if value is not None]
    return tensors[0] if len(tensors) == 1 and isinstance(tensors[0], Tensor) else None


def _with(result: Any, tensor: Tensor) -> Any:
    if isinstance(result, Mapping):
        return type(result)(**{name: None if value is None else tensor for name, value in result.items()})
    return type(result)(None if value is None else tensor for value in result)
