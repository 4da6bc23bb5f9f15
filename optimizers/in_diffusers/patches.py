"""What techniques put on the layers of a component: only while a call of the component goes on.

Between two calls the layers are what they were, so that whoever copies, saves, fuses, moves or patches them meets the
plain model, and each call meets what others have done to it since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ..core.memory_format import channels_last
from ..core.replaced import OFFLOADED, computed_by, replacement
from ..core.shadow import Shadows

NOTHING = object()
"""Stands for "the object has no attribute of its own by this name", and for "leave what is there"."""

Make = Callable[[Any], Any]
"""Given what is there, return what takes its place; `NOTHING` to leave it."""


def computed_by_others(layer: object) -> str:
    """Return in a sentence who computes a layer itself, asked between calls; "" if nobody does."""
    return computed_by(replacement(layer), ("diffusers", "accelerate", "peft"))


class Wrap:
    """One technique's change of one attribute, made anew only when somebody else has changed what is below it."""

    def __init__(self, owner: object, name: str, make: Make) -> None:
        self.owner, self.name, self.make = owner, name, make
        self.on = True
        self.place: _Place | None = None

    def switch(self, on: bool) -> None:
        """Say whether it is there in the calls from now on; switched off within a call, it is gone at once."""
        if on is self.on:
            return
        self.on = on
        if self.place is not None:
            self.place.again()


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


class Layers:
    """The wraps of all techniques on one component, the innermost first."""

    def __init__(self, wraps: Iterable[Wrap]) -> None:
        places: dict[tuple[int, str], _Place] = {}
        for wrap in wraps:
            place = places.setdefault((id(wrap.owner), wrap.name), _Place(wrap.owner, wrap.name))
            place.wraps.append(wrap)
            wrap.place = place
        self._places = tuple(places.values())

    @contextmanager
    def on(self) -> Iterator[None]:
        """Put everything on for one call."""
        try:
            for place in self._places:
                place.put()
            yield
        finally:
            for place in self._places:
                place.take()


class _Place:
    """One attribute of one object, ``below`` as others have left it, and with our ``value`` in a call."""

    def __init__(self, owner: object, name: str) -> None:
        self.owner, self.name = owner, name
        self.wraps: list[Wrap] = []
        self._slot, self._below, self._value = "", None, NOTHING
        self._is_on = False

    def put(self) -> None:
        attributes = self.owner.__dict__
        slot = OFFLOADED if self.name == "forward" and OFFLOADED in attributes else self.name
        below = attributes.get(slot, NOTHING)
        if below is not self._below or slot != self._slot:
            self._slot, self._below = slot, below
            self._value = self._made()
        if self._value is not NOTHING:
            attributes[slot] = self._value
        self._is_on = True

    def take(self) -> None:
        self._is_on = False
        attributes = self.owner.__dict__
        if self._value is NOTHING or attributes.get(self._slot) is not self._value:
            return
        if self._below is NOTHING:
            del attributes[self._slot]
        else:
            attributes[self._slot] = self._below

    def again(self) -> None:
        """Make the value anew, as one of the wraps was switched."""
        is_on = self._is_on
        if is_on:
            self.take()
        self._slot = ""
        if is_on:
            self.put()

    def _made(self) -> Any:
        value = below = own(self.owner, self.name) if self._below is NOTHING else self._below
        for wrap in self.wraps:
            made = wrap.make(value) if wrap.on else NOTHING
            value = value if made is NOTHING else made
        return NOTHING if value is below else value


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
