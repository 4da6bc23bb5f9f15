"""A recording of our own with CUDA graphs, also where torch's own cannot work.

A replay runs the same kernels on the same addresses, and no Python. So it is only good for inputs of the same sizes
(copied to where it reads them), the same weights at the same addresses, and a function that does nothing else in Python
that matters.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch

from ...core.activity import Activity
from ...core.devices import is_out_of_memory
from ...core.errors import error_line
from .cuda_recording import CudaRecording, Record, Recording, Tree

MEMORY = "there is no memory left to record a CUDA graph"

_KINDS = 16
"""Kinds of calls that are remembered without a recording: each is a few numbers."""


@dataclass
class _Variant:
    """One kind of call: seen once, it has what hooks counted; seen twice, a recording and what that reads."""

    counts: dict[str, Activity]
    called: int
    inputs: list[torch.Tensor] = field(default_factory=list)
    recording: Recording | None = None


class RecordedFunction:
    """Record a function at the second call of a kind, and replay it at every later one.

    The first call of a kind runs as it is: it may compile, and a size that never comes again is not worth a recording's
    memory. Where there are ``limit`` recordings, the one longest out of use makes room, unless it was used since the
    new kind's last call: where more kinds than that take turns, the rest of them run as they are.

    ``function`` must run on the GPU without waiting for it. ``record`` is for tests.

    Attributes:
        dropped: how many recordings made room for another kind of call, or were for weights that have moved.
        crowded: how many calls ran as they are because other kinds needed all recordings.
        failure: why nothing is recorded any more; empty while all is well.
    """

    def __init__(self, function: Callable[..., Tree], record: Record = CudaRecording, limit: int = 2) -> None:
        self.function = function
        self._record = record
        self._limit = limit
        self._variants: dict[Hashable, _Variant] = {}
        self._calls = 0
        self.recorded = self.replayed = self.dropped = self.crowded = 0
        self.failure = ""

    def __call__(
        self, token: Hashable, *args: Any, activities: Mapping[str, Activity] = MappingProxyType({}), **kwargs: Any
    ) -> Tree:
        """Run or replay the function; the arguments are trees of tensors and hashable values.

        ``token`` stands for everything it reads besides, such as the addresses of its weights. Hooks inside count into
        ``activities``; a replay counts what its first run did.
        """
        if self.failure:
            return self.function(*args, **kwargs)
        tensors: list[torch.Tensor] = []
        key = (token, _describe((args, kwargs), tensors))
        self._calls += 1
        variant = self._variants.get(key)
        if variant is None:
            self._make_room(token)
            before = deepcopy(dict(activities))
            result = self.function(*args, **kwargs)
            counts = {name: _added(now, before[name]) for name, now in activities.items()}
            self._variants[key] = _Variant(counts, self._calls)
            return result
        if variant.recording is None and self._has_room(variant):
            self._make(variant, tensors, activities, args, kwargs)
        variant.called = self._calls
        if variant.recording is not None:
            try:
                for kept, given in zip(variant.inputs, tensors, strict=True):
                    kept.copy_(given)
                variant.recording.replay()
                result = _map_tensors(torch.clone, variant.recording.output)  # the next replay writes over it
            except (RuntimeError, MemoryError) as error:  # or another program's failed recording is in its way
                self._give_up(error, "a recording cannot be replayed")
            else:
                self.replayed += 1
                for name, activity in activities.items():
                    activity.add(variant.counts[name])
                return result
        return self.function(*args, **kwargs)

    def _make_room(self, token: Hashable) -> None:
        """Forget kinds before another one is remembered: those with other weights, which have moved, go first."""
        for old in [old for old in self._variants if old[0] != token]:  # type: ignore[index]
            self._drop(old)
        bare = [old for old, kind in self._variants.items() if kind.recording is None]
        if len(bare) >= _KINDS:
            self._drop(self._oldest(bare))

    def _has_room(self, variant: _Variant) -> bool:
        """Return whether there is a place for its recording, made by giving up one that is out of use."""
        kept = [key for key, item in self._variants.items() if item.recording is not None]
        if len(kept) < self._limit:
            return True
        oldest = self._oldest(kept)
        if self._variants[oldest].called > variant.called:
            self.crowded += 1
            return False
        self._drop(oldest)
        return True

    def _oldest(self, keys: list[Hashable]) -> Hashable:
        return min(keys, key=lambda key: self._variants[key].called)

    def _drop(self, key: Hashable) -> None:
        self.dropped += self._variants.pop(key).recording is not None

    @property
    def held_bytes(self) -> int:
        return sum(item.recording.held_bytes for item in self._variants.values() if item.recording is not None)

    def forget(self) -> None:
        self._variants.clear()
        self.failure = ""

    def _make(
        self, variant: _Variant, tensors: list[torch.Tensor], activities: Mapping[str, Activity], args: Any, kwargs: Any
    ) -> None:
        before = deepcopy(dict(activities))

        def uncounted() -> None:
            for name, activity in activities.items():
                vars(activity).update(vars(deepcopy(before[name])))

        def run() -> Tree:
            uncounted()  # compiled code is guarded on what hooks have counted when it begins
            remaining = iter(variant.inputs)
            kept_args, kept_kwargs = _map_tensors(lambda _: next(remaining), (args, kwargs))
            return self.function(*kept_args, **kept_kwargs)

        try:
            variant.inputs = [tensor.clone() for tensor in tensors]
            variant.recording = self._record(run, _one_device(variant.inputs))
            self.recorded += 1
        except (RuntimeError, ValueError) as error:  # out of memory, or something that a recording may not contain
            variant.inputs = []
            self._give_up(error, "this model cannot be recorded")
        finally:
            uncounted()

    def _give_up(self, error: Exception, otherwise: str) -> None:
        self.forget()
        self.failure = MEMORY if is_out_of_memory(error) else f"{otherwise} ({error_line(error)})"


def _one_device(tensors: list[torch.Tensor]) -> torch.device:
    """Return where all the tensors are. A recording would not see what is in the memory of another device."""
    places = {tensor.device for tensor in tensors}
    if len(places) != 1:
        raise ValueError(f"it is given tensors on {' and '.join(sorted(map(str, places))) or 'no device'}")
    return places.pop()


def _added(now: Activity, before: Activity) -> Activity:
    used = {place: count - before.used.get(place, 0) for place, count in now.used.items()}
    fallbacks = {reason: count - before.fallbacks.get(reason, 0) for reason, count in now.fallbacks.items()}
    calls, idle = now.model_calls - before.model_calls, now.idle_calls - before.idle_calls
    return Activity(calls, idle, used, dict(now.tokens), fallbacks, dict(now.skipped))


def _describe(tree: Tree, tensors: list[torch.Tensor]) -> Hashable:
    """Return what two trees must agree in for one recording, and collect the tensors in order."""
    if isinstance(tree, torch.Tensor):
        tensors.append(tree)
        return (tree.shape, tree.stride(), tree.dtype, tree.device)
    if isinstance(tree, dict):
        return ("dict", *tree, *[_describe(value, tensors) for value in tree.values()])
    if isinstance(tree, (list, tuple)):
        return (type(tree).__name__, *[_describe(value, tensors) for value in tree])
    return id(tree) if type(tree).__hash__ is None else tree


def _map_tensors(function: Callable[[torch.Tensor], Any], tree: Tree) -> Tree:
    """Return a copy of ``tree`` with ``function`` applied to its tensors, in the order of ``_describe``."""
    if isinstance(tree, torch.Tensor):
        return function(tree)
    if isinstance(tree, dict):
        return {name: _map_tensors(function, value) for name, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(_map_tensors(function, value) for value in tree)
    return tree
