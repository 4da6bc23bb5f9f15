"""What is known about one compiled function: how often it was compiled, how long that took, and what went wrong."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...core.phrases import translatable

IDLE, EAGER = "idle", "eager"
TRACING, GENERATING, READY = translatable("tracing"), translatable("generating code"), translatable("ready")


@dataclass
class CompileState:
    """Counts since the function was first called.

    Attributes:
        phase: ``idle`` (not called yet), ``tracing``, ``generating code``, ``ready``, or ``eager`` (given up).
        graphs: how many graphs were compiled, recompiled ones included.
        recompiles: how many of the compilations replaced one that did not fit any more (size, patches, ...).
        graph_breaks: places where a function could not be traced through, summed over compilations.
        break_places: where those are, e.g. ``get_free_memory (model_management.py:1710)``, and how often each was met.
        seconds: spent tracing and compiling.
        compiled_calls: calls that ran compiled.
        eager_calls: calls that ran as plain Python, by reason.
        cache_hits: graphs whose code was found in the persistent cache.
        fallback: why compilation was given up; empty while it was not.
        remedy: what to do about ``fallback``.
    """

    phase: str = IDLE
    graphs: int = 0
    recompiles: int = 0
    graph_breaks: int = 0
    seconds: float = 0.0
    compiled_calls: int = 0
    break_places: dict[str, int] = field(default_factory=dict)
    eager_calls: dict[str, int] = field(default_factory=dict)
    cache_hits: int = 0
    fallback: str = ""
    remedy: str = ""

    def count_eager(self, reason: str) -> None:
        """Count a call that ran as plain Python."""
        self.eager_calls[reason] = self.eager_calls.get(reason, 0) + 1
