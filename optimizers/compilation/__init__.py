"""Compile networks with torch.compile so that a user can live with it.

:class:`CompileSettings` is what a user decides. :class:`CompilePolicy` is the technique without a host. A
:class:`Compiler` makes the functions that run: :class:`CompiledFunction` counts graphs and recompilations, reports
progress, can be cancelled, and goes on uncompiled where compiling fails. :class:`ArtifactStore` keeps compiled code on
disk from one start to the next.
"""

from .artifacts import ArtifactStore
from .compiled import LIMIT_REACHED, CompiledFunction
from .failures import CompilationCancelled, CompilationFailed, explain
from .progress import Progress
from .settings import BACKENDS, MODES, CompileSettings, cudagraph_trees_refusal, inductor_options
from .weights import WeightGuards

__all__ = [
    "BACKENDS",
    "LIMIT_REACHED",
    "MODES",
    "ArtifactStore",
    "CompilationCancelled",
    "CompilationFailed",
    "CompileSettings",
    "CompiledFunction",
    "Progress",
    "WeightGuards",
    "cudagraph_trees_refusal",
    "explain",
    "inductor_options",
]
