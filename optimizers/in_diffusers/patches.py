"""What techniques put on the layers of a component: only while a call of the component goes on.

Between two calls the layers are what they were, so that whoever copies, saves, fuses, moves or patches them meets the
plain model, and each call meets what others have done to it since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ..core.memory_format import channels_last
from ..core.shadow import OFFLOADED, Shadows, computed_by, replacement

NOTHING = object()
"""Stands for "the object has no attribute of its own by this name", and for "leave what is there"."""

Make = Callable[[Any], Any]
"""Given what is there, return what takes its place; `NOTHING` to leave it."""


def computed_by_others(layer: object) -> str:
    """Return in a sentence who computes a layer itself, asked between calls; "" if nobody does."""
    return computed_by(replacement(layer), ("diffusers", "accelerate", "peft"))


class Wrap:
    """One technique's change of one attribute in each call, made anew only when others have changed what is below it.

    Several of one attribute stand inside of each other, the first one innermost.
    """

    def __init__(self, owner: object, name: str, make: Make) -> None:
        self.owner, self.name, self.make = owner, name, make
        self._on, self._in_call, self._there = True, False, False
        self._slot, self._below, self._value = "", None, NOTHING

    def switch(self, on: bool) -> None:
        """Say whether it is there in the calls from now on; switched within a call, it is there or gone at once."""
        if on is not self._on:
            self._on = on
            if self._in_call and on:
                self.put()
            elif self._in_call:
                self._put_back()

    def put(self) -> None:
        """Put it in as a call begins."""
        self._in_call, attributes = True, self.owner.__dict__
        if not self._on:
            return
        slot = OFFLOADED if self.name == "forward" and OFFLOADED in attributes else self.name
        below = attributes.get(slot, NOTHING)
        if below is not self._below or slot != self._slot:
            self._slot, self._below = slot, below
            found = own(self.owner, self.name) if below is NOTHING else below
            made = self.make(found)
            self._value = NOTHING if made is found else made
        self._there = self._value is not NOTHING
        if self._there:
            attributes[slot] = self._value

    def take(self) -> None:
        """Take it out when the call is over."""
        self._in_call = False
        self._put_back()

    def _put_back(self) -> None:
        attributes, there = self.owner.__dict__, self._there
        self._there = False
        if not there or attributes.get(self._slot) is not self._value:  # others may have set the same value since
            return
        if self._below is NOTHING:
            del attributes[self._slot]
        else:
            attributes[self._slot] = self._below


@contextmanager
def all_in_call(wraps: Sequence[Wrap]) -> Iterator[None]:
    """Have all changes in for one call."""
    try:
        for wrap in wraps:
            wrap.put()
        yield
    finally:
        for wrap in reversed(wraps):
            wrap.take()


class Patches(Shadows):
    """What one technique does to the objects of one component: for each call, and until it is undone."""

    def __init__(self) -> None:
        super().__init__()
        self.wraps: list[Wrap] = []
        self.methods: dict[str, Make] = {}

    def wrap(self, owner: object, name: str, make: Make) -> Wrap:
        """Let ``owner.name`` be ``make(what is there)`` in each call of the component.

        A ``forward`` comes inside of the one that accelerate has put on a module, which gives it tensors on the right
        device.
        """
        wrap = Wrap(owner, name, make)
        self.wraps.append(wrap)
        return wrap

    def shadow(self, owner: object, name: str, value: object) -> Wrap:
        """Let ``owner.name`` be ``value`` in each call of the component, whatever is there."""
        return self.wrap(owner, name, lambda _: value)

    def method(self, name: str, make: Make) -> None:
        """Let a method of the component itself, which reads or changes its weights, be ``make(it)`` between calls too.

        A copy of the component has its own.
        """
        self.methods[name] = make


def own(owner: object, name: str) -> Any:
    """Return the attribute of an object's class by this name; None if there is none."""
    found: Any = getattr(type(owner), name, None)
    return found.__get__(owner) if hasattr(found, "__get__") else found


def to_channels_last(part: torch.nn.Module, patches: Patches) -> None:
    """Lay out the weights of convolutions with their channels last; images follow the weights."""
    for parameter in part.parameters():
        laid_out = channels_last(parameter.data)
        if laid_out is not parameter.data and laid_out.stride() != parameter.data.stride():

            def undo(parameter: torch.Tensor = parameter, strides: Sequence[int] = parameter.data.stride()) -> None:
                data = torch.empty_strided(parameter.shape, strides, dtype=parameter.dtype, device=parameter.device)
                parameter.data = data.copy_(parameter.data)

            patches.on_undo(undo)
            parameter.data = laid_out
