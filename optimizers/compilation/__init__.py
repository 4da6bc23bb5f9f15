"""Compile networks with torch.compile so that a user can live with it.

:class:`CompileSettings` is what a user decides. :class:`CompilePolicy` is the technique without a host. A
:class:`Compiler` makes the functions that run: :class:`CompiledFunction` counts graphs and recompilations, reports
progress, can be cancelled, and goes on uncompiled where compiling fails. :class:`ArtifactStore` keeps compiled code on
disk from one start to the next.
"""

from .artifacts import ArtifactFolder, ArtifactStore
from .compiled import LIMIT_REACHED, CompiledFunction
from .compiler import Compiler
from .failures import CompilationCancelled, CompilationFailed, explain
from .network import CompiledBlocks, CompiledNetwork, repeated_blocks
from .policy import CompilePolicy
from .progress import Observer, Progress
from .settings import (
    BACKENDS,
    CUDA_GRAPH,
    CUDAGRAPH_TREE_MODES,
    DYNAMIC,
    MODES,
    ON_ERROR,
    PRESETS,
    SCOPES,
    CompileSettings,
    NetworkSettings,
    cudagraph_trees_refusal,
    inductor_options,
)
from .state import CompileState
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
    "SCOPES",
    "ArtifactFolder",
    "ArtifactStore",
    "CompilationCancelled",
    "CompilationFailed",
    "CompilePolicy",
    "CompileSettings",
    "CompileState",
    "CompiledBlocks",
    "CompiledFunction",
    "CompiledNetwork",
    "Compiler",
    "NetworkSettings",
    "Observer",
    "Progress",
    "WeightGuards",
    "cudagraph_trees_refusal",
    "explain",
    "inductor_options",
    "repeated_blocks",
]
