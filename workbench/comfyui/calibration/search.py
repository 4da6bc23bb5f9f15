"""Search for a plan: leave out one step after another, always the one that moves the pictures least."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from ....core.technique import attach
from ....optimizers.hosts.comfyui.model import ModelTarget, stack_of
from ....optimizers.hosts.comfyui.protocols import ModelPatcher
from ....optimizers.hosts.comfyui.step_reuse import StepReuse
from ....optimizers.step_reuse.forecasts import AUTOMATIC
from ....optimizers.step_reuse.plan import COMPUTE, GUIDANCE, Plan
from ....optimizers.step_reuse.settings import StepReuseSettings
from .recording import Recording

NO_LIMIT = 1.0
"""Budget of a replay: the plan is tried as it stands."""

Actions = tuple[str, ...]


@dataclass(frozen=True)
class Candidate:
    """A plan that was tried.

    Attributes:
        actions: of each step.
        share: how far the picture of the worst prompt moved, as a share of what another seed changes.
        evaluations: of the network; one without its negative pass counts half.
    """

    actions: Actions
    share: float
    evaluations: float


def with_plan(model: ModelPatcher, plan: Plan) -> ModelPatcher:
    """Return a clone of a MODEL with Reuse Steps that follows a plan."""
    settings = StepReuseSettings(budget=NO_LIMIT, plan=plan)
    return cast(ModelPatcher, attach(ModelTarget(model), StepReuse(model, settings)))


def evaluations_of(model: ModelPatcher) -> float:
    """Return what the last run of a MODEL with Reuse Steps took."""
    technique = stack_of(model).find(StepReuse.kind)
    assert isinstance(technique, StepReuse)
    return technique.outcome.computed + 0.5 * technique.outcome.guidance


def search(
    model: ModelPatcher,
    recordings: Sequence[Recording],
    plan_of: Callable[[Actions], Plan],
    guided: bool,
    limit: float,
    on_try: Callable[[], None] = lambda: None,
) -> list[Candidate]:
    """Return the plans on the way from computing all steps to the limit; each leaves out more than the one before.

    Args:
        model: MODEL without Reuse Steps.
        recordings: of full runs.
        plan_of: makes a plan of actions.
        guided: whether the negative pass may be left out.
        limit: of :attr:`Candidate.share`.
        on_try: called after each replay; whatever it raises ends the search.
    """
    steps = recordings[0].job.steps
    path = [Candidate((COMPUTE,) * steps, 0.0, float(steps))]

    def tried(actions: Actions, by: Sequence[Recording]) -> Candidate:
        clone = with_plan(model, plan_of(actions))
        shares, most = [], 0.0
        for recording in by:
            shares.append(recording.share(recording.replay(clone)))
            most = max(most, evaluations_of(clone))
            on_try()
        return Candidate(actions, max(shares), most)

    worst = recordings[0]
    while True:
        here = path[-1]
        found = [tried(actions, [worst]) for actions in _one_more(here.actions, guided)]
        # What the rules of a run refuse (the first steps, too many in a row) changes nothing.
        found = [one for one in found if one.evaluations < here.evaluations and one.share <= limit]
        found.sort(key=lambda one: (one.share - here.share) / (here.evaluations - one.evaluations))
        for candidate in found:
            checked = tried(candidate.actions, recordings)
            if checked.share <= limit and checked.evaluations < here.evaluations:
                path.append(checked)
                clone = with_plan(model, plan_of(checked.actions))
                worst = max(recordings, key=lambda one: one.share(one.replay(clone)))
                break
        else:
            return path


def _one_more(actions: Actions, guided: bool) -> Iterator[Actions]:
    """Yield the plans that leave out one more step, or half of one."""
    for number, action in enumerate(actions):
        others = (*AUTOMATIC, GUIDANCE) if guided else AUTOMATIC
        for other in others if action == COMPUTE else AUTOMATIC if action == GUIDANCE else ():
            yield (*actions[:number], other, *actions[number + 1 :])
