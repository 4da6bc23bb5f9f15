"""The backend that torch.compile is given for a compiled function: counts, then lets the real one compile."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, cast

from ...core.calls import Function
from .artifacts import ArtifactFolder
from .settings import CompileSettings, inductor_options
from .state import GENERATING, TRACING, CompileState

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import GraphModule


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
        replacement: Function | None,
    ) -> None:
        self._settings = settings
        self._state = state
        self._artifacts = artifacts if settings.backend == "inductor" else None
        self._replacement = replacement
        self.compiler_name = settings.backend  # asked for by torch
        self.runs = 0
        self.variants: dict[int, int] = {}

    def __call__(self, graph: GraphModule, example_inputs: list[Tensor], **options: object) -> Function:
        """Compile one graph; the options of torch.compile have nothing left that is for us."""
        self._count()
        self._state.phase = GENERATING
        with self._artifacts.in_use() if self._artifacts is not None else nullcontext():
            hits = _cache_hits()
            compiled = self._compile(graph, example_inputs)
            self._state.cache_hits += _cache_hits() - hits
        self._state.phase = TRACING

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

    def _compile(self, graph: GraphModule, example_inputs: list[Tensor]) -> Function:
        settings = self._settings
        if self._replacement is not None:
            return cast(Function, self._replacement(graph, example_inputs))
        if settings.backend == "inductor":
            from torch._inductor.compile_fx import compile_fx

            return cast(Function, compile_fx(graph, example_inputs, config_patches=inductor_options(settings)))
        from torch._dynamo import lookup_backend

        return cast(Function, lookup_backend(settings.backend)(graph, example_inputs))


def _cache_hits() -> int:
    from torch._dynamo.utils import counters

    return counters["inductor"]["fxgraph_cache_hit"]
