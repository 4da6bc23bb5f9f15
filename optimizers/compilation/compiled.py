"""A function that runs compiled, says what happens, and goes on uncompiled where compiling fails."""

from __future__ import annotations

import inspect
from contextlib import nullcontext
from functools import cache
from typing import Any

import torch

from ...core.calls import Args, Function, Kwargs
from ...core.phrases import phrase, translatable
from .artifacts import ArtifactFolder
from .backend import CountingBackend
from .failures import CompilationCancelled, CompilationFailed, explain, free_frames
from .progress import Compilations, Observer, Stop
from .settings import CompileSettings, uses_cudagraph_trees
from .sizes import Sizes
from .state import EAGER, IDLE, READY, CompileState
from .weights import WeightGuards

LIMIT_REACHED = translatable("the limit of compiled variants is reached and none of them fits this call")
TURNED_OFF = translatable(
    "torch did not compile this call (compilation is switched off, or the function has nothing to compile)"
)


class CompiledFunction:
    """Run ``function`` through torch.compile.

    Calls compile when they have to, as torch.compile decides by its guards. If compiling fails, that call and all
    later ones run the plain function, until :meth:`retry`. Errors of the function itself are raised as they are.

    Args:
        function: any callable on tensors; a bound method of a module for a part of a network.
        settings: how to compile.
        name: what a person calls it, for progress messages.
        artifacts: where compiled code is kept for the next start; None keeps it where torch does.
        weights: of the network that the function is a method of, to be guarded in a way that suits ComfyUI.
        sizes: tells torch which sizes of the arguments will change; None leaves that to torch.
        backend: runs in place of the backend that ``settings`` name; for tests.

    Attributes:
        state: counts and the reason of a fallback; read only.
        observer: told about progress and asked about cancelling; may be set anew before each call.
    """

    def __init__(
        self,
        function: Function,
        settings: CompileSettings,
        *,
        name: str = "function",
        artifacts: ArtifactFolder | None = None,
        weights: WeightGuards | None = None,
        sizes: Sizes | None = None,
        backend: Function | None = None,
    ) -> None:
        self.function = function
        self.settings = settings
        self.name = name
        self.artifacts = artifacts
        self.state = CompileState()
        self.observer: Observer | None = None
        self.weights = weights
        self._sizes = sizes if settings.dynamic != "false" else None
        self._reuses_results = uses_cudagraph_trees(settings)
        self._backend = CountingBackend(settings, self.state, artifacts, backend)
        self._compiled: Function | None = None
        self._discarded_artifacts = False

    def retry(self) -> None:
        """Forget that compiling failed: something has changed."""
        if self.state.fallback:
            self.state.fallback = self.state.remedy = ""
            self.state.phase = IDLE
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

        Raises:
            CompilationFailed: if compiling fails and the settings say ``raise``.
            CompilationCancelled: if the observer says so; or the observer's own error.
        """
        state = self.state
        if state.fallback:
            state.count_eager(state.fallback)
            return self.function(*args, **kwargs)
        # Part of the function may have run and emptied its arguments when a later part fails to compile.
        untouched = _copy_containers((args, kwargs))
        runs, first = self._backend.runs, not state.graphs
        call = Compilations(self.name, state, self.observer, self._expected_seconds)
        sizes = nullcontext((args, kwargs)) if self._sizes is None else self._sizes.marked(args, kwargs)
        try:
            try:
                with call, sizes as (marked, named):
                    key = self.weights.key() if self.weights is not None else "none"
                    result = self._compiled_function()(key, *marked, **named)
                call.close(last=True)
            finally:
                call.close()
        except Stop:
            call.close()
            state.phase = READY if state.graphs else IDLE
            if call.cancelled is not None:
                raise call.cancelled from None
            raise CompilationCancelled(phrase("Compiling {name} was cancelled.", name=self.name)) from None
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
        state.compiled_calls += 1
        state.phase = READY
        if first and self.artifacts is not None:
            self.artifacts.remember_seconds(self.name, call.seconds)
        return _cloned(result) if self._reuses_results else result

    def _expected_seconds(self) -> float | None:
        """Return how long the first compilation took in an earlier start; of later ones, nothing is known."""
        if self.artifacts is None or self.state.graphs:
            return None
        return self.artifacts.expected_seconds(self.name)

    def _run_uncompiled(self, error: Exception, args: Args, kwargs: Kwargs) -> object:
        """Run the plain function after ``error``, and remember why."""
        state = self.state
        if _is_limit(error):
            state.count_eager(LIMIT_REACHED)
            return self.function(*args, **kwargs)
        reason, remedy = explain(error)
        free_frames(error)  # else both runs would be in memory at once
        result = self.function(*args, **kwargs)  # if this fails too, compiling is not to blame
        if self.settings.on_error == "raise":
            state.phase = IDLE
            problem = phrase("Compiling {name} failed: {reason}.", name=self.name, reason=reason)
            raise CompilationFailed(problem, remedy) from error
        if self.artifacts is not None and self.artifacts.was_used and not self._discarded_artifacts:
            # What was read from the folder may be broken: the next call compiles once more, without it.
            self._discarded_artifacts = True
            self.artifacts.discard(f"{type(error).__name__} while {self.name} was compiled")
            self._compiled = None
            state.count_eager(translatable("what was kept from an earlier start could not be used"))
            return result
        state.phase, state.fallback, state.remedy = EAGER, reason, remedy
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
                dynamic=self.settings.dynamic_argument,
                **options,
            )
        return self._compiled


@cache
def _compile_parameters() -> frozenset[str]:
    return frozenset(inspect.signature(torch.compile).parameters)


def _with_code_of_its_own(function: Function) -> Function:
    """Return a function that calls ``function`` and has a code object of its own.

    torch keeps compiled variants, and which sizes have changed, with the code object. So these belong to one network
    and not to all networks of its class, and go when it goes.
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


def _cloned(value: Any) -> Any:
    """Return copies of the tensors in ``value``: the next replay of a CUDA graph overwrites its results."""
    from torch.utils._pytree import tree_map_only

    return tree_map_only(torch.Tensor, torch.Tensor.clone, value)


def _is_limit(error: BaseException) -> bool:
    return type(error).__name__ == "FailOnRecompileLimitHit"
