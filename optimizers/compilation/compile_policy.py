"""Compile as a technique of any host: what it refuses, what it counts, and what it says of itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from weakref import WeakSet

from ..core.activity import Activity, Summary
from ..core.errors import BackendUnavailable
from ..core.phrases import phrase
from ..core.technique import COMPILATION, Policy
from .compile_settings import CUDAGRAPH_TREE_MODES, CompileSettings, cudagraph_trees_refusal
from .compiled import CompiledFunction
from .compiler import CompiledNetwork
from .progress import Watcher, watching

_GRAPHS = "graphs compiled"
_FEW_LEFT = 3
_COUNTS = ("graphs", "recompiles", "cache_hits", "graph_breaks", "seconds")
_LATEST = 3
"""Recompilations whose reasons are shown."""
_REMEDY = "remove the node that runs Python there, or remove Compile if it gains nothing"


class CompilePolicy(Policy):
    """torch.compile on a network; `BackendUnavailable` if the mode cannot work here and no fallback is allowed.

    Args:
        notes: what was done for that before, in sentences.
        break_remedies: what to do about graph breaks in functions of the host, by their names.
    """

    kind = COMPILATION
    neutral = True

    def __init__(
        self,
        title: str,
        how: CompileSettings,
        what: str,
        notes: tuple[str, ...] = (),
        *,
        break_remedies: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        refusal = cudagraph_trees_refusal() if how.mode in CUDAGRAPH_TREE_MODES else None
        if refusal is not None:
            if how.strict:
                raise BackendUnavailable(f"mode {how.mode} was asked for, but {refusal}.")
            notes = (*notes, f"without CUDA graphs: {refusal}")
        self.title = title
        self.how = how
        self.what = what
        self.notes = notes
        self._break_remedies = break_remedies
        self.used: WeakSet[CompiledNetwork] = WeakSet()  # several where clones run on several GPUs

    @property
    def approximation(self) -> str:
        return "" if self.how.backend == "eager" else "compiled code"

    def clauses(self) -> tuple[str, ...]:
        return (phrase("{what} with {how}", what=self.what, how=self.how.describe()), *self.notes)

    def use(self, compiled: CompiledNetwork, observer: Watcher | None = None) -> None:
        """Note what runs for this technique from now on, watched by ``observer``."""
        fresh = compiled not in self.used
        self.used.add(compiled)
        for function in compiled.functions:
            function.observer = observer
            if fresh:  # the technique is new, so something is different: worth another attempt
                function.retry()

    @contextmanager
    def counted(self, compiled: CompiledNetwork, place: str, activity: Activity) -> Iterator[None]:
        """Count what runs compiled in this context, one call of the network or of its method, and what does not."""
        states = [function.state for function in compiled.functions]
        before = [(state, replace(state, eager_calls=dict(state.eager_calls))) for state in states]
        with watching():
            yield
        for state, old in before:
            uncompiled = 0
            for reason, count in state.eager_calls.items():
                if times := count - old.eager_calls.get(reason, 0):
                    activity.fall_back(reason, times)
                    uncompiled += times
            if compiled_calls := state.calls - old.calls - uncompiled:
                activity.use(place, times=compiled_calls)
            if new_graphs := state.graphs - old.graphs:
                activity.used[_GRAPHS] = activity.used.get(_GRAPHS, 0) + new_graphs

    def summarize(self, activity: Activity) -> Summary:
        """Return e.g. ``compiled whole model: 1 graph, 0 recompiles, 42 s once``."""
        used = {place: count for place, count in activity.used.items() if place != _GRAPHS}
        calls, eager, new_graphs = sum(used.values()), activity.fallback_count, activity.used.get(_GRAPHS, 0)
        functions = [function for compiled in self.used for function in compiled.functions]
        totals = {name: sum(getattr(function.state, name) for function in functions) for name in _COUNTS}
        counts = {**totals, "compiled_calls": calls, "fallbacks": eager}
        warnings = (line for function in functions for line in _warnings(function))
        details = [*activity.fallback_lines(), *warnings]
        if not calls:
            why = phrase("{what} was not called", what=self.what)
            if eager:
                why = phrase("all {count} calls ran uncompiled", count=eager)
            return Summary("inactive", phrase("not compiled: {why}", why=why), counts, tuple(details))
        if new_graphs:
            details.append(f"{new_graphs} of the graphs compiled in this run; later runs of this kind use them")
        headline = phrase("compiled {what}: {how}", what=" and ".join(used), how=_describe(counts))
        if counts["graph_breaks"]:
            breaks = self._graph_breaks(functions)
            headline = phrase("{headline}, {breaks}", headline=headline, breaks=breaks)
        state = "partly" if eager or counts["graph_breaks"] else "active"
        return Summary(state, headline, counts, tuple(details))

    def _graph_breaks(self, functions: Sequence[CompiledFunction]) -> str:
        count, places = sum(function.state.graph_breaks for function in functions), Counter[str]()
        for function in functions:
            places.update(function.state.break_places)
        worst = max(places, key=lambda place: places[place], default="an unknown place")
        where = f"{worst} and {len(places) - 1} more places" if len(places) > 1 else worst
        remedy = next((remedy for name, remedy in self._break_remedies.items() if worst.startswith(name)), _REMEDY)
        return phrase(
            "{count} graph {count|break|breaks} at {where}: {remedy}", count=count, where=where, remedy=remedy
        )


def _describe(counts: dict[str, float]) -> str:
    graphs = phrase("{count} {count|graph|graphs}", count=counts["graphs"])
    if counts["cache_hits"]:
        graphs = phrase("{graphs} ({count} from the cache)", graphs=graphs, count=counts["cache_hits"])
    again = phrase("{count} {count|recompile|recompiles}", count=counts["recompiles"])
    return phrase("{graphs}, {again}, {seconds:.0f} s once", graphs=graphs, again=again, seconds=counts["seconds"])


def _warnings(function: CompiledFunction) -> list[str]:
    lines: list[str] = []
    state = function.state
    if state.fallback:
        lines.append(f"compilation was given up: {state.fallback}. {state.remedy}")
    if state.graph_breaks:
        where = ", ".join(state.break_places) or "an unknown place"
        lines.append(f"{state.graph_breaks} graph breaks, where torch runs Python as before: {where}")
    lines.extend(f"compiled again for {reason}" for reason in state.recompile_reasons[-_LATEST:])
    left = function.variants_left()
    if left <= _FEW_LEFT:
        lines.append(
            f"{max(0, left)} of {function.settings.recompile_limit} variants are left to compile; then calls that "
            "need another variant run uncompiled, and calls that fit a compiled variant stay fast"
        )
    return lines
