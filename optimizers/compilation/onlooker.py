"""What torch compiles during one call of a compiled function: how long it takes, and somebody who looks on."""

from __future__ import annotations

import threading
import time

from .state import TRACING, CompileState, Progress
from .watch import Observer, Watch


class Compilations:
    """A context around one call: counts the compilations in it, and lets ``observer`` look on while they last.

    torch tells when it starts and ends, in whichever call that is; nothing is left registered after the call.

    Args:
        name: what a person calls the function.
        state: its counts, which are kept up to date.
        observer: told about progress and asked about cancelling; None for nobody.

    Attributes:
        happened: whether something was compiled.
    """

    def __init__(self, name: str, state: CompileState, observer: Observer | None) -> None:
        self._name = name
        self._state = state
        self._observer = observer
        self._thread = threading.get_ident()
        self._watch: Watch | None = None
        self._started = 0.0
        self._graph_breaks = 0
        self.happened = False

    @property
    def cancelled(self) -> BaseException | None:
        """What the observer has raised to say that the user has cancelled."""
        return self._watch.cancelled if self._watch is not None else None

    def __enter__(self) -> None:
        from torch._dynamo.callback import callback_handler

        callback_handler.register_start_callback(self._on_start)
        callback_handler.register_end_callback(self._on_end)

    def __exit__(self, *error: object) -> None:
        from torch._dynamo.callback import callback_handler

        callback_handler.remove_start_callback(self._on_start)
        callback_handler.remove_end_callback(self._on_end)

    def close(self) -> None:
        """Send the looker-on away."""
        if self._watch is not None:
            self._watch.close()

    def _on_start(self, *arguments: object) -> None:
        if threading.get_ident() != self._thread:
            return
        self._state.phase = TRACING
        self._started = time.perf_counter()
        self._graph_breaks = _graph_breaks()
        if not self.happened and self._observer is not None:
            self._watch = Watch(self._observer, self._progress)
        self.happened = True

    def _on_end(self, *arguments: object) -> None:
        if threading.get_ident() == self._thread and self._started:
            self._state.seconds += time.perf_counter() - self._started
            self._state.graph_breaks += _graph_breaks() - self._graph_breaks
            self._started = 0.0

    def _progress(self, seconds: float) -> Progress:
        state = self._state
        return Progress(self._name, state.phase, seconds, state.graphs + (state.phase == TRACING))


def _graph_breaks() -> int:
    from torch._dynamo.utils import counters

    return sum(counters["graph_break"].values())
