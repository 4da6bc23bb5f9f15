"""What a technique has done: in the call that goes on, in the run, and since it was put on."""

from __future__ import annotations

from ....core.activity import Activity, Summary, with_faults
from ....core.technique import RunHistory, Technique


class Counted(Technique):
    """A technique with the counts of its calls.

    Attributes:
        activity: what it does in the call that goes on; ``run``: what it has done in the run.
    """

    def __init__(self) -> None:
        self.activity = Activity()
        self.run = Activity()
        self._earlier: RunHistory | None = None

    def begin_call(self) -> None:
        """Start counting one call anew: compiled code must find the same, empty counts in every call."""
        self.activity = Activity(model_calls=1)

    def end_call(self) -> None:
        """Add the counts of the call to those of the run."""
        self.run.add(self.activity)

    def began(self) -> None:
        """Get ready for a run; the one before is over, and its counts are added to those before it."""
        if self.run.model_calls:
            self._earlier = self._earlier or RunHistory(self.policy)
            self._earlier.add(self._summary_of_run(), self.run)
            self.run = Activity()
        super().began()

    def summary(self) -> Summary:
        """Return what it has done since it was put on, in all runs."""
        if self._earlier is None and not self.run.model_calls:
            return Summary("waiting", "not run yet")
        latest = self._summary_of_run()
        return latest if self._earlier is None else self._earlier.ending_with(latest, self.run)

    def _summary_of_run(self) -> Summary:
        return with_faults(self.policy.summarize(self.run), self.run)
