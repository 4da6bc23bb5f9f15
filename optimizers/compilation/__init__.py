"""Compile a function with torch.compile so that a user can live with it.

:class:`CompileSettings` is what a user decides; :class:`CompiledFunction` runs a function by it, counts graphs and
recompilations, reports progress, can be cancelled, and goes on uncompiled where compiling fails.
:class:`ArtifactStore` keeps compiled code on disk from one start to the next.
"""

from .artifacts import ArtifactFolder, ArtifactStore
from .compiled import LIMIT_REACHED, CompiledFunction
from .cuda_graphs import cudagraph_trees_refusal
from .failures import CompilationCancelled, CompilationFailed, explain
from .settings import (
    BACKENDS,
    CUDA_GRAPH,
    CUDAGRAPH_TREE_MODES,
    DYNAMIC,
    MODES,
    ON_ERROR,
    PRESETS,
    CompileSettings,
    inductor_options,
)
from .state import CompileState, Progress
from .watch import Observer
from .weights import WeightGuards

__all__ = [
    "BACKENDS",
    "CUDAGRAPH_TREE_MODES",
    "CUDA_GRAPH",
    "DYNAMIC",
    "LIMIT_REACHED",
    "MODES",
    "ON_ERROR",
    "PRESETS",
    "ArtifactFolder",
    "ArtifactStore",
    "CompilationCancelled",
    "CompilationFailed",
    "CompileSettings",
    "CompileState",
    "CompiledFunction",
    "Observer",
    "Progress",
    "WeightGuards",
    "cudagraph_trees_refusal",
    "explain",
    "inductor_options",
]
