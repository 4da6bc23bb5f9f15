"""What a technique is in diffusers: for one component, with its counts of the call, of the run, and since it is on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

from torch import Tensor

from ..core.activity import Activity, Summary, with_faults
from ..core.not_copied import Args, Function, Kwargs
from ..core.technique import RunHistory, Technique
from .patches import Patches


class PipelineTechnique(Technique):
    """One optimization of one component, made from its settings alone.

    Its methods are given the `Host` of the component.

    Attributes:
        roles: which parts of a pipeline it is for, if the user does not say.
        activity: what it does in the call that goes on; ``run``: what it has done in the run.
    """

    kind: ClassVar[str]
    title: ClassVar[str]
    roles: ClassVar[tuple[str, ...]]

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.activity = Activity()
        self.run = Activity()
        self._earlier: RunHistory | None = None

    @abstractmethod
    def attach(self, host: Any, patches: Patches) -> None:
        """Prepare it for ``host.component``, with what it changes in ``patches``, and make its policy.

        Raises `PacelineError` if it cannot help this component; nothing of it must stay behind then but in ``patches``.
        """

    def before(self, host: Any, args: Args, kwargs: Kwargs) -> None:  # noqa: B027
        """Get ready for one call of the component with these arguments."""

    def around(self) -> AbstractContextManager[None]:
        """Return a context in which the component must run, outside of compiled code."""
        return nullcontext()

    def call(self, host: Any, compute: Function, args: Args, kwargs: Kwargs) -> object:
        """Return the component's result; ``compute`` runs it with all techniques. Only the last technique is asked."""
        return compute(*args, **kwargs)

    def replaced(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the component's tensors whose values it has replaced, with what they get back when it is undone."""
        yield from ()

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
        """Return the summary of all runs since it was put on."""
        if self._earlier is None and not self.run.model_calls:
            return Summary("waiting", "not run yet")
        latest = self._summary_of_run()
        return latest if self._earlier is None else self._earlier.ending_with(latest, self.run)

    def _summary_of_run(self) -> Summary:
        return with_faults(self.policy.summarize(self.run), self.run)
