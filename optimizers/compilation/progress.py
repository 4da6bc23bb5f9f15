"""Say how far a compilation is, and let the user cancel it.

torch compiles on the calling thread and offers no way to stop. A second thread watches and, if the user cancels, raises
an exception in the compiling thread, as Ctrl-C does. Python delivers it between two instructions: tracing and code
generation stop at once, a C++ compiler or a kernel being tuned finishes first.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ...core.phrases import phrase

TRACING, GENERATING, READY = "tracing", "generating code", "ready"

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


class ProgressListener(Protocol):
    """What a host does while something is compiled. Both are called from a thread of their own."""

    def progress(self, progress: Progress) -> None:
        """Show how far the compilation is. If anything was shown, the last one has the phase ``ready``."""

    def check_cancelled(self) -> None:
        """Raise any exception if the user has cancelled; it is raised again to the caller of the function."""


class Stop(BaseException):
    """Raised in the compiling thread; no handler of ordinary errors between there and us catches it."""


class Watch:
    """Watches while the thread that made it compiles; ``describe`` gives the progress after so many seconds."""

    def __init__(self, observer: ProgressListener, describe: Callable[[float], Progress]) -> None:
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
