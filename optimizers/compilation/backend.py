"""The backend that torch.compile is given for a compiled function: counts, then lets the real one compile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from .artifacts import ArtifactFolder
from .settings import CUDAGRAPH_TREE_MODES, CompileSettings, cudagraph_trees_refusal, inductor_options
from .state import GENERATING, TRACING, CompileState


class CountingBackend:
    """A backend for torch.compile.

    torch keeps it for as long as the function's code exists, so it must not know the function or a network.

    Attributes:
        runs: how often a compiled graph ran.
        variants: how often each frame was compiled, by torch's number of the frame.
    """

    def __init__(
        self,
        settings: CompileSettings,
        state: CompileState,
        artifacts: ArtifactFolder | None,
        replacement: Callable[..., Any] | None,
    ) -> None:
        self._settings = settings
        self._state = state
        self._artifacts = artifacts if settings.backend == "inductor" else None
        self._replacement = replacement
        self.compiler_name = settings.backend  # asked for by torch
        self.runs = 0
        self.variants: dict[int, int] = {}

    def __call__(self, graph: Any, example_inputs: Any, **options: Any) -> Callable[..., Any]:
        """Compile one graph; the options of torch.compile have nothing left that is for us."""
        self._count()
        self._state.phase = GENERATING
        with self._artifacts.in_use() if self._artifacts is not None else nullcontext():
            hits = _cache_hits()
            compiled = self._compile(graph, example_inputs)
            self._state.cache_hits += _cache_hits() - hits
        self._state.phase = TRACING

        def run(*args: Any) -> Any:
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

    def _compile(self, graph: Any, example_inputs: Any) -> Any:
        settings = self._settings
        compiled: Any
        if self._replacement is not None:
            compiled = self._replacement(graph, example_inputs)
        elif settings.backend == "inductor":
            from torch._inductor.compile_fx import compile_fx

            trees = not (settings.mode in CUDAGRAPH_TREE_MODES and cudagraph_trees_refusal())
            compiled = compile_fx(
                graph, example_inputs, config_patches=inductor_options(settings, cudagraph_trees=trees)
            )
        else:
            from torch._dynamo import lookup_backend

            compiled = lookup_backend(settings.backend)(graph, example_inputs)
        return compiled


def _cache_hits() -> int:
    from torch._dynamo.utils import counters

    return counters["inductor"]["fxgraph_cache_hit"]
