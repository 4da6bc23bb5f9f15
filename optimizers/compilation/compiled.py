"""A function that runs compiled, says what happens, and goes on uncompiled where compiling fails."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any, cast

import torch

from ..core.not_copied import Args, Function, Kwargs
from .cache_folder import CacheFolder
from .changing import Sizes, WeightGuards
from .compile_settings import CompileSettings, inductor_options, uses_cudagraph_trees
from .progress import GENERATING, Compilations, CompileState, Stop, Watcher, watching
from .reasons import CompilationCancelled, CompilationFailed, explain, free_frames, is_damage

LIMIT_REACHED = "the limit of compiled variants is reached and none of them fits this call"
TURNED_OFF = "torch did not compile this call (compilation is switched off, or the function has nothing to compile)"

_one_thread = threading.RLock()
"""Held in each call: ComfyUI's MultiGPU CFG Split has a thread for each device, and while one of them compiles, torch
compiles anew for the other what fits. A call only starts kernels, so devices still work at once."""


class CompiledFunction:
    """Run ``function`` through torch.compile.

    If compiling fails, that call and all later ones run the plain function, until :meth:`retry`. Errors of the function
    itself are raised as they are.

    Args:
        name: what a person calls it, for progress messages.
        cache: where compiled code is kept for the next start; None keeps it where torch does.
        weights: of the function's network, to be guarded in a way that suits ComfyUI.
        sizes: tells torch which sizes of the arguments will change; None leaves that to torch.
        keeps_lists: whether the function leaves the lists and dictionaries that it is given as they are.

    Attributes:
        observer: told about progress and asked about cancelling; may be set anew before each call.
    """

    def __init__(
        self,
        function: Function,
        settings: CompileSettings,
        *,
        name: str = "function",
        cache: CacheFolder | None = None,
        weights: WeightGuards | None = None,
        sizes: Sizes | None = None,
        keeps_lists: bool = False,
    ) -> None:
        self.function = function
        self.settings = settings
        self.name = name
        self._cache = cache if settings.backend == "inductor" else None
        self.state = CompileState()
        self.observer: Watcher | None = None
        self.weights = weights
        self._sizes = sizes if settings.dynamic != "false" else None
        self._keeps_lists = keeps_lists
        self._reuses_results = uses_cudagraph_trees(settings)
        self._backend = _CountingBackend(settings, self.state, self._cache)
        self._compiled: Function | None = None
        self._cleared_cache = False

    def retry(self) -> None:
        if self.state.fallback:
            self.state.fallback = self.state.remedy = ""
            self._compiled = None

    def variants_left(self) -> int:
        """Return how many more variants torch would compile before it runs new ones uncompiled."""
        limit = self.settings.recompile_limit
        if "recompile_limit" not in _compile_parameters():
            from torch._dynamo import config

            limit = config.cache_size_limit
        return limit - max(self._backend.variants.values(), default=0)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run the function, compiled if possible.

        Raises `CompilationFailed` if the settings are strict, `CompilationCancelled` or the observer's own error.
        """
        state = self.state
        state.calls += 1
        if state.fallback:
            state.count_eager(state.fallback)
            return self.function(*args, **kwargs)
        # Part of the function may have run and emptied its arguments when a later part fails to compile.
        untouched = (args, kwargs) if self._keeps_lists else _copy_containers((args, kwargs))
        with _one_thread, watching() as call:
            return self._run(call, args, kwargs, untouched)

    def _run(self, call: Compilations, args: Args, kwargs: Kwargs, untouched: tuple[Args, Kwargs]) -> Any:
        state, runs = self.state, self._backend.runs
        call.begin(state, self.observer)
        sizes = nullcontext((args, kwargs)) if self._sizes is None else self._sizes.marked(args, kwargs)
        try:
            try:
                with sizes as (marked, named):
                    key = self.weights.key(call) if self.weights is not None else "none"
                    result = self._compiled_function()(key, *marked, **named)
                call.close(last=True)
            finally:
                call.close()
        except Stop:
            call.close()
            if call.cancelled is not None:
                raise call.cancelled from None
            raise CompilationCancelled(f"Compiling {self.name} was cancelled.") from None
        except Exception as error:
            if call.cancelled is not None:
                raise call.cancelled from error
            from_compiler = type(error).__module__.startswith(("torch._dynamo", "torch._inductor"))
            if not (call.happened or from_compiler or _is_limit(error)):
                raise  # not a matter of compiling: the function's own error, or no memory to run it
            return self._run_uncompiled(error, *untouched)
        if call.cancelled is not None:  # too late to stop it, but not to stop what comes next
            raise call.cancelled
        if self._backend.runs == runs:
            state.count_eager(LIMIT_REACHED if self.variants_left() <= 0 else TURNED_OFF)
            return result
        if not self._reuses_results:
            return result
        from torch.utils._pytree import tree_map_only  # the next replay of a CUDA graph overwrites its results

        return tree_map_only(torch.Tensor, torch.Tensor.clone, result)

    def _run_uncompiled(self, error: Exception, args: Args, kwargs: Kwargs) -> object:
        state = self.state
        if _is_limit(error):
            state.count_eager(LIMIT_REACHED)
            return self.function(*args, **kwargs)
        reason, remedy = explain(error)
        free_frames(error)  # else both runs would be in memory at once
        result = self.function(*args, **kwargs)  # if this fails too, compiling is not to blame
        if self.settings.strict:
            raise CompilationFailed(f"Compiling {self.name} failed: {reason}.", remedy) from error
        if self._cache is not None and is_damage(error) and not self._cleared_cache:
            self._cleared_cache = True  # the next call compiles once more, without it
            logging.warning("Paceline: compiled code in %s is damaged, and is removed: %s", self._cache.path, reason)
            self._cache.clear()
            self._compiled = None
            state.count_eager("compiled code of an earlier start was damaged, and was removed")
            return result
        state.fallback, state.remedy = reason, remedy
        state.count_eager(reason)
        return result

    def _compiled_function(self) -> Function:
        if self._compiled is None:
            options: dict[str, Any] = {}
            parameters = _compile_parameters()
            if "recompile_limit" in parameters:  # before torch had it, one limit held for everything
                options["recompile_limit"] = self.settings.recompile_limit
            if "isolate_recompiles" in parameters:
                options["isolate_recompiles"] = True
            if self.weights is not None:
                options["options"] = {"guard_filter_fn": self.weights.keep}
            self._backend.variants.clear()
            self._compiled = torch.compile(
                _with_code_of_its_own(self.function),
                backend=self._backend,
                fullgraph=self.settings.fullgraph,
                dynamic={"auto": None, "true": True, "false": False}[self.settings.dynamic],
                **options,
            )
        return self._compiled


class _CountingBackend:
    """The backend that torch.compile is given: counts, then lets the real one compile.

    torch keeps it for as long as the function's code exists, so it must not hold the function or a network.
    ``variants``: how often each frame was compiled, by torch's number of the frame.
    """

    def __init__(self, settings: CompileSettings, state: CompileState, cache: CacheFolder | None) -> None:
        self._settings, self._state, self._cache = settings, state, cache
        self.compiler_name = settings.backend  # asked for by torch
        self.runs = 0
        self.variants: dict[int, int] = {}

    def __call__(self, graph: torch.fx.GraphModule, example_inputs: list[torch.Tensor], **options: object) -> Function:
        from torch._dynamo.utils import counters

        self._count()
        self._state.phase = GENERATING
        if self._cache is not None:
            self._cache.use()
        hits = counters["inductor"]["fxgraph_cache_hit"]
        compiled = self._compile(graph, example_inputs)
        self._state.cache_hits += counters["inductor"]["fxgraph_cache_hit"] - hits

        def run(*args: object) -> object:
            self.runs += 1
            return compiled(*args)

        return run

    def _count(self) -> None:
        from torch._guards import CompileContext

        self._state.graphs += 1
        frame = getattr(CompileContext.current_compile_id(), "frame_id", None)
        frame = -1 if frame is None else frame
        self.variants[frame] = self.variants.get(frame, 0) + 1
        if self.variants[frame] > 1:  # another variant of a frame: the ones there are do not fit this call
            self._state.recompiles += 1

    def _compile(self, graph: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Function:
        settings = self._settings
        if settings.backend == "inductor":
            from torch._inductor.compile_fx import compile_fx

            config: Any = torch.compiler.config
            with config.patch(cache_key_tag=f"paceline {_traced_with(example_inputs)}"):
                return cast(Function, compile_fx(graph, example_inputs, config_patches=inductor_options(settings)))
        from torch._dynamo import lookup_backend

        return cast(Function, lookup_backend(settings.backend)(graph, example_inputs))


def _traced_with(inputs: Sequence[object]) -> list[str]:
    """Return the sizes with which a graph for any size was traced: torch must take kept code of no others for it.

    With torch 2.13 AOTAutograd's cache, whose key has names of sizes only, gave SD3 the code of another size: a wrong
    picture. Part of the key of this cache and of inductor's is ``cache_key_tag``.
    """
    sizes = [size for value in inputs for size in (value.shape if isinstance(value, torch.Tensor) else (value,))]
    return [str(size.node.hint if isinstance(size, torch.SymInt) else size) for size in sizes]


@cache
def _compile_parameters() -> frozenset[str]:
    return frozenset(inspect.signature(torch.compile).parameters)


def _with_code_of_its_own(function: Function) -> Function:
    """Return a function that calls ``function`` and has a code object of its own.

    torch keeps compiled variants with the code object: these belong to one network, not to its class, and go with it.
    """

    def call(weights: str, /, *args: object, **kwargs: object) -> object:
        if not weights:  # looked at, so that it is guarded
            raise ValueError("weights must not be empty")
        return function(*args, **kwargs)

    call.__code__ = call.__code__.replace()
    return call


_CONTAINERS = (dict, list, tuple)


def _copy_containers(value: Any) -> Any:
    """Return ``value`` with its dicts, lists and tuples copied and everything inside of them shared."""
    kind = type(value)
    if kind is dict:
        return {key: _copy_containers(item) if type(item) in _CONTAINERS else item for key, item in value.items()}
    if kind is list or kind is tuple:
        return kind([_copy_containers(item) if type(item) in _CONTAINERS else item for item in value])
    return value


def _is_limit(error: BaseException) -> bool:
    return type(error).__name__ == "FailOnRecompileLimitHit"
