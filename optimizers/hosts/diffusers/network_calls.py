"""Outputs of a network in the calls of one evaluation, and whether its next inputs are of the same kind."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ....core.calls import Args, Kwargs
from .prediction import Prediction


@dataclass(frozen=True)
class PipelineCall:
    """A call of a denoiser or ControlNet by a pipeline: the latent and the timestep that it was given."""

    sample: Tensor
    timestep: object

    @classmethod
    def of(cls, args: Args, kwargs: Kwargs) -> PipelineCall | None:
        """Return it; None if the network is not called as pipelines call it."""
        sample = kwargs.get("sample", kwargs.get("hidden_states", args[0] if args else None))
        timestep = kwargs.get("timestep", args[1] if len(args) > 1 else None)
        return cls(sample, timestep) if isinstance(sample, Tensor) else None


@dataclass(frozen=True)
class Text:
    """The text input of a network. Equal where it is the same tensor, unchanged."""

    tensor: object
    version: int | None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Text) and self.tensor is other.tensor and self.version == other.version

    def __hash__(self) -> int:
        return id(self.tensor)


def text_of(args: Args, kwargs: Kwargs) -> Text:
    """Return the text input of a call of a denoiser or a ControlNet."""
    text = kwargs.get("encoder_hidden_states", args[2] if len(args) > 2 else None)
    return Text(text, version_of(text) if isinstance(text, Tensor) else None)


def version_of(tensor: Tensor) -> int | None:
    """Return how often a tensor was changed in place; None in inference mode, where torch does not count it."""
    return None if tensor.is_inference() else tensor._version


class LastCalls:
    """Outputs of the denoiser in the last evaluation, and the keys of the calls of all networks.

    Attributes:
        given: whether a network's last output was returned again in this evaluation.
    """

    def __init__(self) -> None:
        self.given = False
        self._keys: list[tuple[Hashable, ...]] = []
        self._steady: list[bool] = []
        self._asked = self._called = 0
        self._fewer = False
        self._kept: list[tuple[torch.Size, Any]] = []

    def is_new(self, key: tuple[Hashable, Hashable, Text]) -> bool:
        """Return whether the next call of a network is not the one of the last evaluation.

        ``key``: name of the network, other inputs that must be the same, and the text. Some pipelines make tensors anew
        for every step: a text that was never the same is no sign of a change.
        """
        number, self._asked = self._asked, self._asked + 1
        if number == len(self._keys):
            self._keys.append(key)
            self._steady.append(False)
            return True
        before, self._keys[number] = self._keys[number], key
        was_steady, self._steady[number] = self._steady[number], before == key
        return self._fewer or before[:2] != key[:2] or (was_steady and before != key)

    def end(self) -> None:
        self._fewer = self._asked < len(self._keys)
        del self._keys[self._asked :], self._steady[self._asked :]
        self._asked, self._called, self.given = 0, 0, False

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


def tensor_given(args: Args, kwargs: Kwargs, name: str, place: int) -> Tensor:
    """Return a tensor that a component was called with, by name or position."""
    value = kwargs[name] if name in kwargs else args[place]
    assert isinstance(value, Tensor), f"{name} is a tensor in all models"
    return value
