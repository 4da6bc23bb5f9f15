"""The methods of a component through which it is called, and what a copy of the component is.

They look for what is on the component when they are called. A copy has nothing on it, whoever makes it, and is the
plain model with all of its weights.
"""

from __future__ import annotations

import copy
import inspect
import re
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from types import MethodType
from typing import Any

from torch.nn import Parameter

from ..core.devices import is_compiling
from ..core.not_copied import Function
from ..core.shadow import OFFLOADED
from .components import VAE, Component
from .patches import NOTHING, own

HOST = "_paceline_host"
"""Attribute of a part with its host. Both are freed together; a table of all hosts would keep every part in memory."""

_OURS = "_paceline_below"
_OF_VAES = re.compile(r"forward|([a-z]\w*_)?(encode|decode)")


class Entries:
    """Our methods on one component, whose calls go to a ``Host``.

    One that others have wrapped stays in their chain when it is taken off, and runs what was below it. If a host comes
    again, the outermost one tells it of the call; those further in are inside of that call.

    Attributes:
        below: what each of them runs: the component's own method, or what others had put in its place before.
    """

    def __init__(self, component: Component) -> None:
        self._part = component.part
        names: Iterable[str] = ("forward",)
        if component.role == VAE:
            names = filter(_OF_VAES.fullmatch, dir(type(component.part)))
        self.below: dict[str, Function] = {name: _current(self._part, name) for name in names}
        self._ours: dict[str, Any] = {}

    def put_on(self, host: Any, others: Iterable[str]) -> None:
        """Let the component's calls go to ``host``; ``others``: other methods too."""
        attributes = self._part.__dict__
        self.below |= {method: _current(self._part, method) for method in others}
        for entry, below in self.below.items():
            slot = OFFLOADED if entry == "forward" and OFFLOADED in attributes else entry
            self._ours[entry] = attributes[slot] = MethodType(_entry(entry, below, self._part), self._part)
        rest = {HOST: host, "__getstate__": partial(self._state, host), "__deepcopy__": partial(self._deep_copy, host)}
        self._ours |= rest
        attributes.update(rest)

    def take_off(self) -> dict[str, Any]:
        """Remove them, and return them. Where somebody has wrapped one and still calls it, it finds no host."""
        attributes, before = self._part.__dict__, self._before()
        ours = {slot: attributes.pop(slot) for slot in before}
        attributes.update({slot: value for slot, value in before.items() if value is not NOTHING})
        return ours

    def _before(self) -> dict[str, Any]:
        """Return the values that belong in the places of ours."""
        attributes, found = self._part.__dict__, dict[str, Any]()
        for name, ours in self._ours.items():
            if name not in self.below:
                found |= {name: NOTHING} if attributes.get(name) is ours else {}
                continue
            below = _current(self._part, name)
            is_own = getattr(below, "__func__", below) is getattr(type(self._part), name, None)
            for slot in (name, OFFLOADED) if name == "forward" else (name,):
                if _below(attributes.get(slot)) is not NOTHING:
                    found[slot] = NOTHING if is_own and slot == name else below
        return found

    def _state(self, host: Any) -> dict[str, Any]:
        """Return the state of a copy: that of the component without us, with the weights that it had."""
        if next(host.replaced(), None) is not None:
            return dict(copy.deepcopy(self._part).__dict__)
        kind, before = type(self._part), self._before()
        state = kind.__getstate__(self._part) if hasattr(kind, "__getstate__") else self._part.__dict__
        kept = {key: value for key, value in state.items() if key not in before}
        return kept | {key: value for key, value in before.items() if value is not NOTHING}

    def _deep_copy(self, host: Any, memo: dict[int, Any]) -> Any:
        for tensor, before in host.replaced():
            first = memo.get(id(before), before)  # what was replaced twice gets back what was there first
            copied = first.detach().to(tensor.device, copy=True)
            trained = (before if isinstance(before, Parameter) else tensor).requires_grad
            memo.setdefault(id(tensor), Parameter(copied, trained) if isinstance(tensor, Parameter) else copied)
        ours = self.take_off()
        try:
            return copy.deepcopy(self._part, memo)
        finally:
            self._part.__dict__.update(ours)


def _entry(name: str, below: Function, part: object) -> Callable[..., object]:
    owner = weakref.ref(part)

    def run(self: Any, *args: object, **kwargs: object) -> object:
        found: Any = self.__dict__.get(HOST)
        if found is not None and found.component.part is self:
            if is_compiling() and found.running:  # inside of a call; the lock would end the graph
                return below(*args, **kwargs)
            return found.enter(name, below, args, kwargs)
        return (below if owner() is self else own(self, name))(*args, **kwargs)

    run.__name__, run.__doc__ = name, below.__doc__
    # Not __wrapped__: who takes off wrappers, as accelerate does, would take off ours.
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    theirs = inspect.signature(below)
    names = [one for one in theirs.parameters.values() if one.name != "self"]
    run.__signature__ = theirs.replace(parameters=[itself, *names])  # type: ignore[attr-defined]
    run.__dict__[_OURS] = (run, below)
    return run


def _below(method: Any) -> Any:
    """Return the function that a method of ours runs; `NOTHING` for others."""
    function = getattr(method, "__func__", None)
    made, below = getattr(function, _OURS, (None, NOTHING))
    return NOTHING if made is None or made is not function else below  # wrappers copy attributes of what they wrap


def _current(owner: object, name: str) -> Function:
    """Return the function that our method would stand in front of now."""
    attributes = owner.__dict__
    slot = OFFLOADED if name == "forward" and OFFLOADED in attributes else name
    found = attributes[slot] if slot in attributes else getattr(owner, name)
    while (below := _below(found)) is not NOTHING:
        found = below
    return found  # type: ignore[no-any-return]
