"""Say how far a compilation is, and let the user cancel it.

torch compiles on the thread that calls the function, for seconds to minutes, and offers no way to ask how far it is
or to stop. So a second thread looks on: it reports the progress, and asks the host whether the user has cancelled. If
so, it raises an exception in the compiling thread, as Ctrl-C does. Python delivers it between two instructions, so a
C++ compiler or a kernel that is being tuned at that moment finishes first; tracing and code generation are Python and
stop at once.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Protocol

from .state import Progress

POLL_SECONDS = 0.2
REPORT_SECONDS = 1.0


class Observer(Protocol):
    """What a host does while something is compiled. Both are called from a thread of their own."""

    def progress(self, progress: Progress) -> None:
        """Show how far the compilation is."""

    def check_cancelled(self) -> None:
        """Raise any exception if the user has cancelled; it is raised again to the caller of the function."""


class Stop(BaseException):
    """Raised in the compiling thread; no handler of ordinary errors between there and us catches it."""


class Watch:
    """Looks on while the thread that made it compiles.

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
        self.cancelled: BaseException | None = None
        self.started = time.perf_counter()
        self._thread = threading.Thread(target=self._look_on, name="paceline-compile-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it. An exception that was not delivered yet is taken back; ``cancelled`` says it all the same."""
        self._over.set()
        with self._lock:
            if self._raised:
                _raise_in_thread(self._compiling_thread, None)
        self._thread.join(timeout=1.0)

    def _look_on(self) -> None:
        reported = 0.0
        while not self._over.wait(POLL_SECONDS):
            seconds = time.perf_counter() - self.started
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
                        _raise_in_thread(self._compiling_thread, Stop)
                return


def _raise_in_thread(thread: int, error: type[BaseException] | None) -> None:
    """Raise ``error`` in ``thread`` at its next instruction; None takes back one that was not delivered yet."""
    argument = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), argument)
