"""Say how far a compilation is, and let the user cancel it.

torch compiles on the thread that calls the function, for seconds to minutes, and offers no way to ask how far it is
or to stop. So a second thread watches: it reports the progress, and asks the host whether the user has cancelled. If
so, it raises an exception in the compiling thread, as Ctrl-C does. Python delivers it between two instructions, so a
C++ compiler or a kernel that is being tuned at that moment finishes first; tracing and code generation are Python and
stop at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ...core.phrases import phrase
from .state import READY, TRACING, CompileState

POLL_SECONDS = 0.2
REPORT_SECONDS = 1.0


@dataclass(frozen=True)
class Progress:
    """How far a compilation is.

    Attributes:
        name: what is compiled, for a person.
        phase: as in ``CompileState``.
        seconds: since this compilation began.
        graph: number of the graph that is being compiled, from 1.
        expected_seconds: how long it took the last time on this machine; None if that is not known.
    """

    name: str
    phase: str
    seconds: float
    graph: int
    expected_seconds: float | None = None

    @property
    def text(self) -> str:
        """Return e.g. ``compiling 00:42 · graph 3``."""
        minutes, seconds = divmod(int(self.seconds), 60)
        time = f"{minutes:02d}:{seconds:02d}"
        if self.phase == READY:
            return phrase("compiled in {time} · {count} {count|graph|graphs}", time=time, count=self.graph)
        return phrase("compiling {time} · graph {number}", time=time, number=self.graph)


class Observer(Protocol):
    """What a host does while something is compiled. Both are called from a thread of their own."""

    def progress(self, progress: Progress) -> None:
        """Show how far the compilation is. If anything was shown, the last one has the phase ``ready``."""

    def check_cancelled(self) -> None:
        """Raise any exception if the user has cancelled; it is raised again to the caller of the function."""


class Stop(BaseException):
    """Raised in the compiling thread; no handler of ordinary errors between there and us catches it."""


class Compilations:
    """A context around one call of a compiled function: counts what torch compiles in it, and lets an observer watch.

    torch tells when it starts and ends, in whichever call that is; nothing is left registered after the call.

    Args:
        name: what a person calls the function.
        state: its counts, which are kept up to date.
        observer: told about progress and asked about cancelling; None for nobody.
        expected: returns how long it took the last time; asked only if something is compiled.

    Attributes:
        happened: whether something was compiled.
        seconds: how long that took.
    """

    def __init__(
        self, name: str, state: CompileState, observer: Observer | None, expected: Callable[[], float | None]
    ) -> None:
        self._name = name
        self._state = state
        self._observer = observer
        self._expected = expected
        self._expected_seconds: float | None = None
        self._thread = threading.get_ident()
        self._watch: _Watch | None = None
        self._started = 0.0
        self._graph_breaks = self._break_reasons = 0
        self.happened = False
        self.seconds = 0.0

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

    def close(self, last: bool = False) -> None:
        """End the watching; ``last``: show that it is ready, if anything was shown before."""
        if self._watch is not None:
            state = self._state
            ready = Progress(self._name, READY, self.seconds, state.graphs, self._expected_seconds) if last else None
            self._watch.close(ready)

    def _on_start(self, *arguments: object) -> None:
        if threading.get_ident() != self._thread:
            return
        self._state.phase = TRACING
        self._started = time.perf_counter()
        self._graph_breaks, self._break_reasons = _graph_breaks(), len(_break_reasons())
        if not self.happened and self._observer is not None:
            self._expected_seconds = self._expected()
            self._watch = _Watch(self._observer, self._progress)
        self.happened = True

    def _on_end(self, *arguments: object) -> None:
        if threading.get_ident() == self._thread and self._started:
            seconds = time.perf_counter() - self._started
            self.seconds += seconds
            self._state.seconds += seconds
            self._state.graph_breaks += _graph_breaks() - self._graph_breaks
            for place in map(_place, _break_reasons()[self._break_reasons :]):
                self._state.break_places[place] = self._state.break_places.get(place, 0) + 1
            self._started = 0.0

    def _progress(self, seconds: float) -> Progress:
        state = self._state
        graph = state.graphs + (state.phase == TRACING)
        return Progress(self._name, state.phase, seconds, graph, self._expected_seconds)


class _Watch:
    """Watches while the thread that made it compiles.

    Args:
        observer: whom to tell and to ask.
        describe: makes the progress, from the seconds since the start.
    """

    def __init__(self, observer: Observer, describe: Callable[[float], Progress]) -> None:
        self._observer = observer
        self._describe = describe
        self._compiling_thread = threading.get_ident()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._raised = False
        self._last: Progress | None = None
        self.cancelled: BaseException | None = None
        self._started = time.perf_counter()
        self._thread = threading.Thread(target=self._run, name="paceline-compile-watch", daemon=True)
        self._thread.start()

    def close(self, last: Progress | None) -> None:
        """End it, on the thread that made it. A cancellation not raised there yet never is; ``cancelled`` holds it."""
        self._last = last
        self._over.set()
        with self._lock:
            raised, self._raised = self._raised, False
        if raised:
            _meet_stop()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        reported = 0.0
        while not self._over.wait(POLL_SECONDS):
            seconds = time.perf_counter() - self._started
            if seconds - reported >= REPORT_SECONDS:
                reported = seconds
                self._observer.progress(self._describe(seconds))
            try:
                self._observer.check_cancelled()
            except BaseException as error:  # whatever the host uses to say so
                with self._lock:
                    self.cancelled = error
                    if not self._over.is_set():
                        self._raised = True
                        _stop_thread(self._compiling_thread)
                return
        if reported and self._last is not None:
            self._observer.progress(self._last)


def _graph_breaks() -> int:
    from torch._dynamo.utils import counters

    return sum(counters["graph_break"].values())


def _break_reasons() -> list[Any]:
    from torch._dynamo.utils import graph_break_reasons

    return graph_break_reasons


def _place(reason: Any) -> str:
    """Return e.g. ``get_free_memory (model_management.py:1710)`` for what torch says of a graph break."""
    stack = getattr(reason, "user_stack", None)
    if not stack:
        return "an unknown place"
    # What an installed package does is for its caller to decide: ComfyUI, or another node.
    frame = next((frame for frame in reversed(stack) if "site-packages" not in frame.filename), stack[-1])
    return f"{frame.name} ({os.path.basename(frame.filename)}:{frame.lineno})"


def _stop_thread(thread: int) -> None:
    """Raise ``Stop`` in ``thread`` at its next instruction."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Stop))


def _meet_stop() -> None:
    """Let a ``Stop`` that still waits for this thread be raised here, where it ends.

    CPython can also take it back, but up to 3.12 it then looks for it for ever: each call of a function gives way to
    other threads, and on 3.11 a profiler or debugger of Python code never comes back.
    """
    with contextlib.suppress(Stop):
        _stop_thread(threading.get_ident())  # there is one place for it: one that waits and this one are one
        while True:
            time.sleep(0)
