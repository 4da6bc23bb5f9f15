"""What Compile VAE and Compile ControlNet share: run methods of a network through torch.compile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch

from ....core.activity import Activity, Summary
from ....core.errors import BackendUnavailable
from ....core.memory_format import channels_last, without_gaps
from ....core.order import COMPILATION
from ...compilation import CUDAGRAPH_TREE_MODES, CompiledFunction, CompileSettings, cudagraph_trees_refusal
from ...compilation.sizes import expect_changes, no_equal_sizes
from .compilation.prepare import is_replaced, structure, uses_dynamic_vram
from .compilation.surroundings import NodeObserver, artifact_store
from .compilation.words import describe_states, warnings
from .method_proxy import ModuleProxy, NetworkCall, NetworkTechnique

_REPLACED = "another node has replaced this method of the network itself"
_NOT_LOADED = "it is not loaded completely; compiled code needs all weights on the device"
_DYNAMIC = "it runs with dynamic VRAM, which cannot be compiled"
_GRAPH = "graph"


class CompiledMethod:
    """One method of one network, compiled.

    Args:
        network: the live network.
        method: the method's name.
        settings: how to compile.
        name: what a person calls it.

    Attributes:
        function: the compiled function; it gets the network as its first argument and does not keep it.
    """

    def __init__(self, network: Any, method: str, settings: CompileSettings, name: str) -> None:
        store = artifact_store()
        about = {**structure(network), "method": method, **asdict(settings)}
        device = str(next(iter(network.parameters())).device)
        artifacts = None if store is None else store.folder(about, device)
        self.function = CompiledFunction(getattr(type(network), method), settings, name=name, artifacts=artifacts)
        self._sizes: set[tuple[int, ...]] = set()

    def __call__(self, network: Any, *args: Any, **kwargs: Any) -> Any:
        """Run the method. With dynamic sizes, one more compilation serves all sizes that follow the first."""
        if self.function.settings.dynamic == "false":
            return self.function(network, *args, **kwargs)
        # A tile is a view with gaps between its rows. How long those are must not be compiled in.
        args = tuple(without_gaps(value) for value in args)
        kwargs = {name: without_gaps(value) for name, value in kwargs.items()}
        size = _image_size((*args, *kwargs.values()))
        another = bool(self._sizes - {size})
        marked = [_of_any_size(value) if another else value for value in args]
        named = {name: _of_any_size(value) if another else value for name, value in kwargs.items()}
        if "context" in named:  # the next prompt must not compile anything
            named["context"] = _of_any_length(named["context"])
        with no_equal_sizes():
            result = self.function(network, *marked, **named)
        self._sizes.add(size)
        return result


def _image_size(values: Iterable[Any]) -> tuple[int, ...]:
    """Return height and width of the first image among ``values``."""
    return next((tuple(value.shape[-2:]) for value in values if _is_image(value)), ())


def _is_image(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.ndim >= 4


def _of_any_size(value: Any) -> Any:
    return expect_changes(value, value.ndim - 2, value.ndim - 1) if _is_image(value) else value


def _of_any_length(value: Any) -> Any:
    return expect_changes(value, 1) if isinstance(value, torch.Tensor) and value.ndim == 3 else value


# By network, so that running a node again compiles nothing anew.
_methods: WeakKeyDictionary[Any, dict[tuple[str, CompileSettings], CompiledMethod]] = WeakKeyDictionary()


def compiled_method(network: Any, method: str, settings: CompileSettings, name: str) -> CompiledMethod:
    """Return a compiled method of a live network, made when it is asked for the first time."""
    methods = _methods.setdefault(network, {})
    if (method, settings) not in methods:
        methods[method, settings] = CompiledMethod(network, method, settings, name)
    return methods[method, settings]


class CompileNetwork(NetworkTechnique):
    """torch.compile on methods of a VAE's or ControlNet's network.

    Args:
        settings: how to compile.
        methods: which methods to compile, as ``NetworkCall`` names them.
        channels_last: whether images are handed over with their channels last in memory.
        notes: what was done to the object before, in sentences.
        node_id: the node to report to.

    Raises:
        BackendUnavailable: if the mode cannot work here and the settings do not allow a fallback.
    """

    kind = COMPILATION

    def __init__(
        self,
        settings: CompileSettings,
        methods: tuple[str, ...],
        channels_last: bool = False,
        notes: tuple[str, ...] = (),
        node_id: str | None = None,
    ) -> None:
        super().__init__(node_id)
        self.settings = settings
        self.methods = methods
        self.channels_last = channels_last
        self._with_cuda_graphs = settings.mode in CUDAGRAPH_TREE_MODES
        refusal = cudagraph_trees_refusal() if self._with_cuda_graphs else None
        if refusal is not None:
            if settings.on_error == "raise":
                raise BackendUnavailable(f"mode {settings.mode} was asked for, but {refusal}.")
            notes = (*notes, f"without CUDA graphs: {refusal}")
        self.notes = notes
        self._used: WeakSet[CompiledMethod] = WeakSet()

    def parts(self, network: Any, method: str) -> str | None:
        """Return which part of ``network`` to compile in place of the whole ``method``; None for the whole."""
        return None

    def describe(self) -> str:
        """Return what is compiled and how, and what was done for that."""
        order = ", channels last" if self.channels_last else ""
        return "; ".join((f"{self._what} with {self.settings.describe()}{order}", *self.notes))

    @property
    def _what(self) -> str:
        return " and ".join(_name(method) for method in self.methods)

    def install(self, call: NetworkCall, activity: Activity) -> None:
        """Put the compiled methods in the place of the network's own."""
        for method in self.methods:
            call.wrap(method, partial(self._run, call, method, activity))

    def _run(
        self, call: NetworkCall, method: str, activity: Activity, inner: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Run ``method`` compiled, and count whether it did."""
        reason = _refusal(call, method)
        if reason is not None:
            activity.fall_back(reason)
            return inner(*args, **kwargs)
        if self.channels_last:
            args = tuple(channels_last(value) for value in args)
            kwargs = {name: channels_last(value) for name, value in kwargs.items()}
        part = self.parts(call.network, method)
        if part is None:
            compiled = self._compiled(call.network, _name(method))
            run = partial(compiled, call.network)
        else:
            module = getattr(call.network, part)
            compiled = self._compiled(module, "forward")
            if compiled.function.state.fallback:
                activity.fall_back(compiled.function.state.fallback)
                return inner(*args, **kwargs)
            with_part = ModuleProxy(call.network, {part: ModuleProxy(module, {"__call__": partial(compiled, module)})})
            run = partial(getattr(type(call.network), method), with_part)
        eager, graphs = Counter(compiled.function.state.eager_calls), compiled.function.state.graphs
        result = run(*args, **kwargs)
        reasons = Counter(compiled.function.state.eager_calls) - eager
        if reasons:
            activity.fall_back(next(iter(reasons)))
            if part is not None:
                # Parts hand lists on to each other. One that ran uncompiled may have filled a copy of such a list.
                return inner(*args, **kwargs)
            return result
        activity.use(method)
        if compiled.function.state.graphs > graphs:
            new = compiled.function.state.graphs - graphs
            activity.used[_GRAPH] = activity.used.get(_GRAPH, 0) + new
        return _cloned(result) if self._with_cuda_graphs else result

    def _compiled(self, network: Any, method: str) -> CompiledMethod:
        compiled = compiled_method(network, method, self.settings, self.title)
        if compiled not in self._used:  # the node ran anew, so something is different: worth another attempt
            self._used.add(compiled)
            compiled.function.retry()
        compiled.function.observer = NodeObserver(self.node_id)
        return compiled

    def summarize(self, activity: Activity) -> Summary:
        """Return e.g. ``compiled decode: 2 graphs, 1 recompile, 42 s once; 9 calls compiled, 0 eager``."""
        details = list(activity.fallback_lines())
        states = [compiled.function.state for compiled in self._used]
        for compiled in self._used:
            details.extend(warnings(compiled.function))
        used = {name: count for name, count in activity.used.items() if name != _GRAPH}
        eager = activity.fallback_count
        if not used:
            why = f"all {eager} calls ran as without the node" if eager else f"{self._what} was not called"
            return Summary("inactive", f"not compiled: {why}", details=tuple(details))
        graphs = activity.used.get(_GRAPH, 0)
        if graphs:
            details.append(f"{graphs} of the graphs compiled in this run; the next run of this kind has them")
        what = " and ".join(_name(method) for method in used)
        text = f"compiled {what}: {describe_states(states)}; {sum(used.values())} calls compiled, {eager} eager"
        return Summary("partly" if eager else "active", text, details=tuple(details))


def _name(method: str) -> str:
    """Return the name of the function behind ``method``."""
    return "forward" if method == "__call__" else method


def _refusal(call: NetworkCall, method: str) -> str | None:
    """Return why a method of a network cannot run compiled as it is now; None if it can."""
    network = call.network
    if uses_dynamic_vram(call.patcher):
        return _DYNAMIC
    if getattr(network, "model_lowvram", False):
        return _NOT_LOADED
    name = _name(method)
    return _REPLACED if is_replaced(network, name) else None


def _cloned(value: Any) -> Any:
    """Return copies of the tensors in ``value``: the next replay of a CUDA graph overwrites its results."""
    from torch.utils._pytree import tree_map_only

    return tree_map_only(torch.Tensor, torch.Tensor.clone, value)
