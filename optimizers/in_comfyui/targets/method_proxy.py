"""Techniques on the network of a VAE or a ControlNet: put in for one call, never left on the network.

VAE and CONTROL_NET objects have no wrappers to hook into. This pack's copy of one shows its class a
:class:`ModuleProxy` in the place of the network while one call lasts. The network is looked up anew for each call and
nothing is written to it, so two copies of one file never see each other's settings, and the memory manager finds the
real network.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache, partial
from typing import Any, Generic, TypeVar, cast

from torch.nn import Module

from ...core.activity import Activity
from ...core.not_copied import Function, NotCopied
from ...core.phrases import phrase
from ...core.technique import COMPILATION
from ..run.comfy_technique import AnyTechnique, ComfyTechnique
from ..run.stack import Stack
from ..structure.protocols import NetworkPatcher

T = TypeVar("T")

STACK = "paceline_stack"
"""Attribute of a copy that carries techniques."""

HOME = "paceline_home"
"""Attribute of a copy on another network than its loader gave it: how to go back."""

Wrapper = Function
"""``wrapper(inner, *args, **kwargs)``: calls ``inner(*args, **kwargs)``, the method as it was, when it pleases."""


class NetworkCall(NotCopied):
    """One call of a VAE's or ControlNet's network, as the techniques see it.

    Attributes:
        network: the live network; never one remembered from when a node ran.
        methods: as wrapped so far, by name: ``decode`` and its relatives of a VAE, ``__call__`` of a ControlNet.
        activities: counts of this call, by the technique's kind.
        cleanup: undone when the call is over.
    """

    def __init__(self, network: Module, patcher: NetworkPatcher, methods: tuple[str, ...]) -> None:
        self.network = network
        self.patcher = patcher
        # Looked up when they run: ComfyUI loads the network first, and with it what other packs put on it.
        self.methods: dict[str, Function] = {
            name: partial(_run_method, network, name) for name in methods if hasattr(network, name)
        }
        self.activities: dict[str, Activity] = {}
        self.cleanup = ExitStack()

    def wrap(self, method: str, wrapper: Wrapper) -> None:
        """Put ``wrapper`` around ``method``, outside of what is there; ignored if the network has no such method."""
        if method in self.methods:
            self.methods[method] = partial(wrapper, self.methods[method])

    def run(self, method: str, *args: object, **kwargs: object) -> object:
        for activity in self.activities.values():
            activity.model_calls += 1
        return self.methods[method](*args, **kwargs)

    def forget(self) -> None:
        """Let go of the wrappers: they hold this call, and would keep the network in memory with it."""
        self.methods = {}

    def proxy(self) -> Module:
        return cast(Module, ModuleProxy(self.network, {name: partial(self.run, name) for name in self.methods}))


def _run_method(network: Module, method: str, *args: object, **kwargs: object) -> object:
    return getattr(network, method)(*args, **kwargs)


class ModuleProxy:
    """Looks like ``target``, but for some attributes; a replacement ``__call__`` runs when the proxy is called.

    Reading and writing any other attribute reaches ``target`` itself.
    """

    def __init__(self, target: Module, replacements: Mapping[str, object]) -> None:
        self.__dict__.update(replacements)
        self.__dict__["_target"] = target

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._target, name, value)

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self.__dict__.get("__call__", self._target)(*args, **kwargs)


class NetworkTechnique(ComfyTechnique[NetworkCall]):
    """One optimization attached to a VAE or ControlNet; one that changes how a method is called wraps it."""

    not_run = phrase("not used yet")
    under_way = phrase("running")


class NetworkTarget(Generic[T]):
    """A VAE or CONTROL_NET that techniques are attached to. Copies carry them; the object itself is never changed.

    Without any of ours, a copy is on the network that it came with.
    """

    def __init__(self, thing: T) -> None:
        self.thing = thing

    @property
    def techniques(self) -> tuple[AnyTechnique, ...]:
        return stack_on(self.thing).techniques


def stack_on(thing: object) -> Stack:
    """Return the stack of this pack on a VAE or CONTROL_NET; an empty stack if nothing is attached."""
    return cast(Stack, getattr(thing, STACK, None) or Stack())


def install(stack: Stack, call: NetworkCall) -> Module:
    """Let the techniques of ``stack`` wrap the methods of ``call``, and return what takes the network's place.

    Compiling comes first, i.e. innermost, unlike in a MODEL: what others put around a method would be a new object for
    each call, and compiled again.
    """
    for technique in sorted(stack.techniques, key=lambda item: item.kind != COMPILATION):
        technique.install(call, call.activities.setdefault(technique.kind, Activity()))
    return call.proxy()


def count(stack: Stack, call: NetworkCall) -> None:
    """Add what happened in ``call`` to the techniques' current run."""
    for technique in stack.techniques:
        if technique.kind in call.activities:
            technique.runs.add(call.activities[technique.kind])


@cache
def class_with(mixin: type, plain: type) -> type:
    """Return the class of a copy that carries techniques: ``mixin`` comes before ``plain``, which it looks like."""
    return type(plain.__name__, (mixin, plain), {"__module__": plain.__module__})


def plain_class(thing: object, mixin: type) -> type:
    """Return the class that ``thing`` came with."""
    return next(base for base in type(thing).__mro__ if not issubclass(base, mixin))
