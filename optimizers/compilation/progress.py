"""What happens while a function is compiled: how often and why, how long, how far it is, and how the user cancels it.

torch compiles on the calling thread and offers no way to stop. A second thread watches and, if the user cancels, raises
an exception in the compiling thread, as Ctrl-C does. Python delivers it between two instructions: tracing and code
generation stop at once, a C++ compiler or a kernel being tuned finishes first.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..core.phrases import phrase
from .reasons import explain_recompile

TRACING, GENERATING, READY = "tracing", "generating code", "ready"

MEANT = "Paceline runs this outside of compiled code"
"""Reason of ``torch.compiler.disable`` for graph breaks that are no fault."""

POLL_SECONDS = 0.2
REPORT_SECONDS = 1.0


@dataclass(frozen=True)
class Progress:
    """How far a compilation is; ``graph`` counts from 1."""

    phase: str
    seconds: float
    graph: int

    @property
    def text(self) -> str:
        """Return e.g. ``compiling 00:42 · graph 3``."""
        minutes, seconds = divmod(int(self.seconds), 60)
        time = f"{minutes:02d}:{seconds:02d}"
        if self.phase == READY:
            return phrase("compiled in {time} · {count} {count|graph|graphs}", time=time, count=self.graph)
        return phrase("compiling {time} · graph {number}", time=time, number=self.graph)


Watcher = Callable[[Progress | None], None]
"""Called from a thread of its own while something is compiled, to show how far it is; the last has the phase ``ready``.

Called with None, it raises any exception if the user has cancelled, which is raised again to the function's caller.
"""


class Stop(BaseException):
    """Raised in the compiling thread; no handler of ordinary errors between there and us catches it."""


class Watch:
    """Watches while the thread that made it compiles; ``describe`` gives the progress after so many seconds."""

    def __init__(self, observer: Watcher, describe: Callable[[float], Progress]) -> None:
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
                self._observer(self._describe(seconds))
            try:
                self._observer(None)
            except BaseException as error:  # whatever the host uses to say so
                with self._lock:
                    self.cancelled = error
                    if not self._over.is_set():
                        self._raised = True
                        _stop_thread(self._compiling_thread)
                return
        if reported and self._last is not None:
            self._observer(self._last)


def _stop_thread(thread: int) -> None:
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


@dataclass
class CompileState:
    """Counts since the function was first called.

    Attributes:
        phase: of the latest compilation, ``tracing`` or ``generating code``.
        graphs: how many graphs were compiled, recompiled ones included.
        recompile_reasons: what had changed each time, as far as torch says: see :func:`explain_recompile`.
        break_places: e.g. ``get_free_memory (model_management.py:1710)``, and how often each was met.
        calls: how often the function was called.
    eager_calls: calls that ran as plain Python, by reason.
        cache_hits: graphs whose code was found in the persistent cache.
        fallback, remedy: why compilation was given up, and what to do; empty while it was not.
    """

    phase: str = TRACING
    graphs: int = 0
    recompiles: int = 0
    recompile_reasons: list[str] = field(default_factory=list)
    graph_breaks: int = 0
    seconds: float = 0.0
    break_places: dict[str, int] = field(default_factory=dict)
    calls: int = 0
    eager_calls: dict[str, int] = field(default_factory=dict)
    cache_hits: int = 0
    fallback: str = ""
    remedy: str = ""

    def count_eager(self, reason: str) -> None:
        self.eager_calls[reason] = self.eager_calls.get(reason, 0) + 1


class Compilations:
    """A context around calls of compiled functions: counts what torch compiles in them, and lets observers watch.

    Nothing is left registered afterwards. Of the latest call, ``happened`` says whether it compiled something, and
    ``seconds`` how long that took; ``cancelled`` is the error with which a host has stopped it.
    """

    def __init__(self) -> None:
        self._state: CompileState | None = None
        self._observer: Watcher | None = None
        self._thread = threading.get_ident()
        self._watch: Watch | None = None
        self._started = 0.0
        self._graph_breaks = self._break_reasons = 0
        self._guards_failed: dict[object, int] = {}
        self.happened = False
        self.seconds = 0.0
        self.cancelled: BaseException | None = None

    def begin(self, state: CompileState, observer: Watcher | None) -> None:
        """Count in ``state`` from now on, until :meth:`close`."""
        self._state, self._observer = state, observer
        self.happened, self.seconds, self.cancelled = False, 0.0, None

    def __enter__(self) -> None:
        from torch._dynamo.callback import callback_handler

        # torch notes why it compiles anew before it says that it starts.
        self._guards_failed = {code: len(reasons) for code, reasons in _guard_failures().items()}
        callback_handler.register_start_callback(self._on_start)
        callback_handler.register_end_callback(self._on_end)

    def __exit__(self, *error: object) -> None:
        from torch._dynamo.callback import callback_handler

        callback_handler.remove_start_callback(self._on_start)
        callback_handler.remove_end_callback(self._on_end)

    def close(self, last: bool = False) -> None:
        """End the watching of a call; ``last``: show that it is ready, if anything was shown before."""
        state, watch = self._state, self._watch
        if watch is not None and state is not None:
            watch.close(Progress(READY, self.seconds, state.graphs) if last else None)
            self.cancelled, self._watch = watch.cancelled, None
        self._state = None

    def _on_start(self, *arguments: object) -> None:
        state = self._state
        if threading.get_ident() != self._thread or state is None:
            return
        state.phase = TRACING
        self._started = time.perf_counter()
        self._graph_breaks, self._break_reasons = _graph_breaks(), len(_break_reasons())
        if not self.happened and self._observer is not None:
            self._watch = Watch(
                self._observer,
                lambda seconds: Progress(state.phase, seconds, state.graphs + (state.phase == TRACING)),
            )
        self.happened = True

    def _on_end(self, *arguments: object) -> None:
        state = self._state
        if threading.get_ident() == self._thread and self._started and state is not None:
            seconds = time.perf_counter() - self._started
            self.seconds += seconds
            state.seconds += seconds
            reasons = _break_reasons()[self._break_reasons :]
            faults = [reason for reason in reasons if MEANT not in str(getattr(reason, "reason", ""))]
            state.graph_breaks += max(0, _graph_breaks() - self._graph_breaks - len(reasons) + len(faults))
            for place in map(_place, faults):
                state.break_places[place] = state.break_places.get(place, 0) + 1
            for code, failures in _guard_failures().items():
                new = failures[self._guards_failed.get(code, 0) :]
                self._guards_failed[code] = len(failures)
                if new:  # one for each variant that does not fit, the one used last before the others
                    state.recompile_reasons.append(explain_recompile(new[0]))
            self._started = 0.0


_open = threading.local()


@contextlib.contextmanager
def watching() -> Iterator[Compilations]:
    """Give what watches compilations on this thread: what an outer context has begun, else until this one ends."""
    watch: Compilations | None = getattr(_open, "watch", None)
    if watch is not None:
        yield watch
        return
    _open.watch = watch = Compilations()
    try:
        with watch:
            yield watch
    finally:
        _open.watch = None
        watch.close()


def _guard_failures() -> dict[object, list[str]]:
    """Return torch's reasons for compiling a function anew, by the function's code."""
    from torch._dynamo import utils

    return dict(getattr(utils, "guard_failures", {}))


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
