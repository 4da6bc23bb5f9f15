"""What the report says about compiled functions."""

from __future__ import annotations

from collections.abc import Iterable

from ....compilation import CompiledFunction, CompileState

_FEW_LEFT = 3


def describe_states(states: Iterable[CompileState]) -> str:
    """Return e.g. ``2 graphs, 1 recompile, 42 s once``, summed over ``states``."""
    states = list(states)
    graphs, recompiles = sum(state.graphs for state in states), sum(state.recompiles for state in states)
    hits, seconds = sum(state.cache_hits for state in states), sum(state.seconds for state in states)
    cached = f" ({hits} from the cache)" if hits else ""
    return (
        f"{graphs} graph{'s' if graphs != 1 else ''}{cached}, {recompiles} recompile{'s' if recompiles != 1 else ''}, "
        f"{seconds:.0f} s once"
    )


def warnings(function: CompiledFunction) -> list[str]:
    """Return what a user should know about one compiled function."""
    lines = []
    state = function.state
    if state.fallback:
        lines.append(f"compilation was given up: {state.fallback}. {state.remedy}")
    if state.graph_breaks:
        lines.append(f"{state.graph_breaks} graph breaks: places that torch cannot compile and runs as before")
    left = function.variants_left()
    if left <= _FEW_LEFT:
        lines.append(
            f"{max(0, left)} of {function.settings.recompile_limit} variants are left to compile; then a call that "
            "needs another one runs uncompiled, and one that fits a compiled one stays fast"
        )
    return lines
