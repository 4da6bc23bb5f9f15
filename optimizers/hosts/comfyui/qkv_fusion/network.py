"""The fused projections of one network, shared by all techniques on it, because weights are the network's too."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from .....core.activity import Activity
from ....families import find_layer
from ....families.family import AttentionLayer
from ....qkv_fusion import SEPARATE, FusedProjections
from .weights import join_weights, lasting_obstacle, passing_obstacle, settings

ALL, KEYS_AND_VALUES = "q, k and v", "k and v"
PATCHED_INPUTS = "another node's patch gives keys and values tokens of their own"


class NetworkFusion:
    """All projections of a network that can be computed together.

    Args:
        network: a ``diffusion_model``; not kept, only the layers in it are.
    """

    def __init__(self, network: Any) -> None:
        self.groups: list[_Group] = []
        for module in network.modules():
            known = find_layer(module)
            if known is not None:
                self.groups += [_Group(module, known, names) for names in known.projections]

    @property
    def sizes(self) -> tuple[int, int]:
        """How many layers can have q, k and v together, and how many only k and v."""
        complete = sum(len(group.fused.layers) == 3 for group in self.groups)
        return complete, len(self.groups) - complete

    @contextmanager
    def installed(self, device: torch.device, activity: Activity) -> Iterator[None]:
        """Compute projections together while the context lasts, wherever that can be done on ``device``."""
        changed: list[_Group] = []
        try:
            for group in self.groups:
                reason = group.prepare(device)
                if reason is None:
                    changed.append(group)
                    group.put_in(activity)
                else:
                    activity.fall_back(reason)
            yield
        finally:
            for group in changed:
                group.take_out()

    def forget(self) -> None:
        """Let go of all weights, so that unloading the model frees them. They are found again without a copy."""
        for group in self.groups:
            group.fused.forget()


class _Group:
    """Projections of one attention layer."""

    def __init__(self, attention: Any, known: AttentionLayer, names: tuple[str, ...]) -> None:
        layers = [getattr(attention, name) for name in names]
        if known.inputs and layers[0].in_features != layers[1].in_features:
            layers = layers[1:]  # attention to the text: the query can never read the same
        places = (ALL, KEYS_AND_VALUES)[-len(layers) + 1 :]
        self.attention = attention
        self.foresees = bool(known.inputs)
        self.value_is_third = len(known.inputs) == 3
        self.fused = FusedProjections(layers, places, plan=None if self.foresees else 0)
        self.forward = partial(_foresee, self)  # one object for life, as the projections' functions
        self.inner: Callable[..., Any] = attention.forward
        self._previous: Any = None
        self._settings: tuple[Any, ...] = ()
        self._refused: tuple[tuple[int, ...], str] | None = None

    def prepare(self, device: torch.device) -> str | None:
        """Make the joined weights if they are not there yet; return why the layer must be left alone, or None."""
        fused = self.fused
        for layer in fused.layers:
            reason = passing_obstacle(layer, device)
            if reason is not None:
                return reason
        now = tuple(settings(layer) for layer in fused.layers)
        if fused.ready and now == self._settings:
            return None
        weights = tuple(id(layer._parameters["weight"]) for layer in fused.layers)
        if self._refused is None or self._refused[0] != weights:
            reason = lasting_obstacle(fused.layers)
            self._refused = None if reason is None else (weights, reason)
        if self._refused is not None:
            return self._refused[1]
        fused.build(join_weights)
        self._settings = now
        return None

    def put_in(self, activity: Activity) -> None:
        """Take the place of the layers' ``forward``, and of the attention's where it decides what they read."""
        # Straight into the instance's dictionary: a module's own __setattr__ takes ten times as long.
        for layer, function in zip(self.fused.layers, self.fused.functions, strict=True):
            layer.__dict__["forward"] = function
        self.fused.count = activity.use
        self.fused.fall_back = activity.fall_back
        if self.foresees:
            state = self.attention.__dict__
            self._previous = state.get("forward")
            self.inner = self.attention.forward
            state["forward"] = self.forward

    def take_out(self) -> None:
        """Undo ``put_in``, and forget the tensors of the call."""
        for layer in self.fused.layers:
            del layer.__dict__["forward"]
        if self.foresees:
            if self._previous is None:
                del self.attention.__dict__["forward"]
            else:
                self.attention.__dict__["forward"] = self._previous
                self._previous = None
        self.fused.reset()


def _foresee(group: _Group, x: Any, context: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Tell the projections which of them will read the same tokens, and run the attention layer."""
    fused = group.fused
    tokens = x if context is None else context
    value = kwargs.get("value")
    if args and group.value_is_third:
        value = args[0]
    last = len(fused.layers) - 2
    if value is not None and value is not tokens:
        fused.plan = SEPARATE
        fused.fall_back(PATCHED_INPUTS)
    else:
        fused.plan = 0 if tokens is x else last
    result = group.inner(x, context, *args, **kwargs)
    fused.plan = None
    return result


_fusions: weakref.WeakKeyDictionary[Any, NetworkFusion] = weakref.WeakKeyDictionary()


def fusion_of(network: Any) -> NetworkFusion:
    """Return the fused projections of a network; one object as long as the network lives."""
    network = getattr(network, "_orig_mod", network)  # ComfyUI's own compile node puts a wrapper in its place
    found = _fusions.get(network)
    if found is None:
        found = _fusions[network] = NetworkFusion(network)
    return found
