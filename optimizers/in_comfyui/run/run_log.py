"""Sampling runs: when one begins and ends, the counts of a technique in it, and all runs of the prompt."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from ...core.activity import Activity, Summary
from ...core.not_copied import NotCopied
from ...core.technique import Policy, RunHistory


@dataclass
class Run(NotCopied):
    """One sampling run: ``activity`` sums over its model calls; the rest is None while it goes on."""

    activity: Activity = field(default_factory=Activity)
    started: float = field(default_factory=time.perf_counter)
    seconds: float | None = None
    summary: Summary | None = None


class RunLog(NotCopied):
    """The runs of one technique in the last prompt; shared by every clone that carries the technique.

    ``earlier`` are those before the latest. Where no server names prompts, all runs count as one.

    Several models can take part in one run (a second guidance model, one clone for each GPU). It begins with the first
    of them and ends with the last, so each says who it is.
    """

    def __init__(self, policy: Policy) -> None:
        self._lock = threading.Lock()  # clones for several GPUs run in threads of their own
        self._taking_part: set[int] = set()
        self._current: Run | None = None
        self._last: Run | None = None
        self._prompt: str | None = None
        self._policy = policy
        self.earlier = RunHistory(policy)

    @property
    def latest(self) -> Run | None:
        """The run that goes on, else the last finished one."""
        return self._current or self._last

    def interrupted(self, participant: int) -> bool:
        """Drop a run that goes on, if ``participant`` is about to begin for a second time; return whether it did.

        ComfyUI does not clean up ControlNets after an error.
        """
        with self._lock:
            if participant not in self._taking_part:
                return False
            self._taking_part.clear()
            self._current = None
            return True

    def begin(self, participant: int, prompt: str | None = None) -> bool:
        """Note that ``participant`` starts sampling; start a new run unless one goes on. Return whether it is new.

        ``prompt`` is the id of what is executed: the runs of another one are forgotten.
        """
        with self._lock:
            new = not self._taking_part
            if new:
                last, self._last = self._last, None
                if prompt != self._prompt:
                    self._prompt, self.earlier = prompt, RunHistory(self._policy)
                elif last is not None and last.summary is not None:
                    self.earlier.add(last.summary, last.activity, last.seconds or 0.0)
            if self._current is None:
                self._current = Run()
            self._taking_part.add(participant)
            return new

    def add(self, activity: Activity) -> None:
        with self._lock:
            if self._current is None:  # a call of the model outside of a sampling run
                self._current = Run()
            self._current.activity.add(activity)

    def finish(self, participant: int) -> bool:
        """Note that ``participant`` is done; return whether it was the last one, so that the run is over."""
        with self._lock:
            if self._current is None or participant not in self._taking_part:
                return False
            self._taking_part.discard(participant)
            if self._taking_part:
                return False
            self._last, self._current = self._current, None
            self._last.seconds = time.perf_counter() - self._last.started
            return True
