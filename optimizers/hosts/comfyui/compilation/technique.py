"""Compile UNet as a technique: the compiled network takes the network's place for one model call at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakSet

import torch

from .....core.activity import Activity, Summary
from .....core.errors import BackendUnavailable, InvalidSetting, UnsupportedModel
from .....core.order import COMPILATION
from ....compilation import CUDA_GRAPH, CompiledFunction, cudagraph_trees_refusal
from ....compilation.settings import CUDAGRAPH_TREE_MODES
from ..model import describe_model
from ..stack import ModelCall, Technique
from .network import CompiledNetwork, NetworkSettings, compiled_network, repeated_blocks
from .network_options import reads_places
from .prepare import foreign_compile, is_replaced, uses_dynamic_vram
from .recording import NO_DEVICE, RecordedNetwork
from .surroundings import NodeObserver
from .words import describe_states, warnings

_FOREIGN = "another node (ComfyUI's TorchCompileModel, ...) compiles this model too and comes after this one"
_REPLACED = "another node has replaced the network's forward pass itself"
_NOT_LOADED = "the model is not loaded completely; a compiled model needs all of its weights on the device"
_DYNAMIC = "the model runs with dynamic VRAM, which cannot be compiled"

_PATCHED_BLOCKS = "patches need to know at which block they are, so blocks cannot share code; use scope whole_model"
_NETWORK, _GRAPH = "network", "graph"


class CompileUNet(Technique[ModelCall]):
    """torch.compile on the network of a MODEL.

    Args:
        patcher: the MODEL, read for its structure only.
        settings: how to compile.
        notes: what was done to the model before, in sentences.
        node_id: the node to report to.

    Raises:
        UnsupportedModel: if the scope is repeated blocks and there are none.
        BackendUnavailable: if the mode cannot work here and the settings do not allow a fallback.
    """

    kind = COMPILATION
    title = "Compile UNet"

    def __init__(
        self, patcher: Any, settings: NetworkSettings, notes: tuple[str, ...] = (), node_id: str | None = None
    ) -> None:
        super().__init__(node_id)
        self.settings = settings
        self._what = "whole model"
        if settings.scope == "repeated_blocks":
            counts = Counter(type(block).__name__ for block in repeated_blocks(patcher.model.diffusion_model))
            if not counts:
                raise UnsupportedModel(
                    f"{describe_model(patcher)} has no blocks that repeat.", "Choose scope whole_model."
                )
            self._what = " and ".join(f"{count} x {name}" for name, count in counts.items())
        refusal = cudagraph_trees_refusal() if settings.compilation.mode in CUDAGRAPH_TREE_MODES else None
        if refusal is not None:
            if settings.compilation.on_error == "raise":
                raise BackendUnavailable(f"mode {settings.compilation.mode} was asked for, but {refusal}.")
            notes = (*notes, f"without CUDA graphs: {refusal}")
        if settings.compilation.mode == CUDA_GRAPH:
            if torch.device(patcher.load_device).type != "cuda":
                notes = (*notes, f"without a recording: {NO_DEVICE}")
            elif settings.scope != "whole_model":
                raise InvalidSetting("mode cuda-graph records the whole model.", "Choose scope whole_model.")
        self.notes = notes
        self._tried: WeakSet[Any] = WeakSet()  # models that it was tried on since the node ran
        self._used: WeakSet[CompiledNetwork] = WeakSet()  # several where clones run on several GPUs

    def describe(self) -> str:
        """Return how the network is compiled, and what was done for that."""
        order = ", channels last" if self.settings.channels_last else ""
        return "; ".join((f"{self._what} with {self.settings.compilation.describe()}{order}", *self.notes))

    def install(self, call: ModelCall, activity: Activity) -> None:
        """Put the compiled network in the place of the network's own forward pass."""
        reason = self._refusal(call)
        if reason is not None:
            activity.fall_back(reason)
            return
        compiled = compiled_network(call.model, self.settings, self.title)
        if any(is_replaced(module, attribute) for module, attribute, _ in compiled.places):
            activity.fall_back(_REPLACED)
            return
        fresh = call.model not in self._tried
        self._tried.add(call.model)
        self._used.add(compiled)
        observer = NodeObserver(self.node_id)
        for function in compiled.functions:
            function.observer = observer
            if fresh:  # the node ran anew, so something is different: worth another attempt
                function.retry()
        for module, attribute, replacement in compiled.places:
            own = module.__dict__.get(attribute)
            setattr(module, attribute, partial(_run, replacement, compiled.functions, activity))
            if own is None:
                call.cleanup.callback(delattr, module, attribute)
            else:
                call.cleanup.callback(setattr, module, attribute, own)

    def summarize(self, activity: Activity) -> Summary:
        """Return e.g. ``compiled whole model: 1 graph, 0 recompiles, 42 s once; 40 calls compiled, 0 eager``."""
        details = list(activity.fallback_lines())
        compiled, eager = activity.used.get(_NETWORK, 0), activity.fallback_count
        functions = [function for used in self._used for function in used.functions]
        for function in functions:
            details.extend(warnings(function))
        for recorded in (used.recorded for used in self._used):
            if recorded is not None:
                details.extend(_recording_lines(recorded))
        if not compiled:
            why = f"all {eager} calls ran as without the node" if eager else "the network was not called"
            return Summary("inactive", f"not compiled: {why}", details=tuple(details))
        graphs = activity.used.get(_GRAPH, 0)
        if graphs:
            details.append(f"{graphs} of the graphs compiled in this run; the next run of this kind has them")
        states = [function.state for function in functions]
        text = f"compiled {self._what}: {describe_states(states)}; {compiled} calls compiled, {eager} eager"
        return Summary("partly" if eager else "active", text, details=tuple(details))

    def _refusal(self, call: ModelCall) -> str | None:
        model = call.model
        if foreign_compile(call.transformer_options):
            return _FOREIGN
        patcher = getattr(model, "current_patcher", None)
        if patcher is not None and uses_dynamic_vram(patcher):
            return _DYNAMIC
        if self.settings.scope == "repeated_blocks" and reads_places(call.transformer_options):
            return _PATCHED_BLOCKS
        if getattr(model, "model_lowvram", False):
            return _NOT_LOADED
        return None


def _recording_lines(recorded: RecordedNetwork) -> list[str]:
    counts = recorded.recorded
    lines = [f"{counts.recorded} CUDA graphs recorded, {counts.replayed} steps replayed so far"]
    return lines + [f"{count} steps not recorded: {reason}" for reason, count in recorded.not_recorded.items()]


def _run(
    replacement: Callable[..., Any], functions: list[CompiledFunction], activity: Activity, *args: Any, **kwargs: Any
) -> Any:
    """Run one place of the network and count whether it ran compiled."""
    eager = Counter[str]()
    for function in functions:
        eager.subtract(function.state.eager_calls)
    graphs = sum(function.state.graphs for function in functions)
    result = replacement(*args, **kwargs)
    for function in functions:
        eager.update(function.state.eager_calls)
    reasons = [reason for reason, count in eager.items() if count > 0]
    if reasons:
        activity.fall_back(reasons[0])
        return result
    activity.use(_NETWORK)
    new_graphs = sum(function.state.graphs for function in functions) - graphs
    if new_graphs:
        activity.used[_GRAPH] = activity.used.get(_GRAPH, 0) + new_graphs
    return result
