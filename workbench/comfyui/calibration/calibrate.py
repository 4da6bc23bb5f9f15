"""From a few prompts to a plan that was checked on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....core.errors import InvalidSetting, require_number
from ....core.phrases import phrase, translatable
from ....optimizers.hosts.comfyui.protocols import ModelPatcher
from ....optimizers.hosts.comfyui.step_reuse import sampler_name
from ....optimizers.step_reuse.plan import Plan
from ..sampling import SamplingJob
from .recording import Recording, drawn, record
from .search import Actions, Candidate, evaluations_of, search, with_plan

_ROUNDS = 3
"""How often the limit of the replays is corrected by what really happened."""

_BOLDEST = 4.0
"""By so much at most the limit is raised at once."""

_WORTH_IT = 1.2
"""A smaller correction would find the same plan."""


@dataclass(frozen=True)
class Calibration:
    """What was found.

    Attributes:
        plan: to be given to Reuse Steps.
        evaluations: of the network with it, on average over the prompts.
        share: how far the picture of the worst prompt really moved, as a share of what another seed changes.
        tried: replays.
    """

    plan: Plan
    evaluations: float
    share: float
    tried: int


def calibrate(
    model: ModelPatcher, jobs: Sequence[SamplingJob], budget: float, say: Callable[[str], None] = lambda text: None
) -> Calibration:
    """Find the fastest plan that keeps the picture of every prompt inside of the budget.

    Candidates are tried on recorded outputs; the best is then run for real, and the limit of the search is corrected
    by the difference.

    Args:
        model: MODEL without Reuse Steps.
        jobs: prompts and seeds, all with one sampler, scheduler, number of steps and guidance.
        budget: how far a picture may move, as a share of what another seed changes.
        say: told what is going on.

    Raises:
        InvalidSetting: if there are no jobs, or they are not of one kind.
        UnsupportedModel: see :func:`record`.
    """
    from comfy.samplers import sampler_object

    require_number("budget", budget, 0.0, 1.0)
    kinds = {(job.sampler_name, job.scheduler, job.steps, job.cfg, job.denoise) for job in jobs}
    if len(kinds) != 1:
        raise InvalidSetting(
            phrase(
                "A plan is for one sampler, scheduler, number of steps, guidance and denoise, and there are {count}.",
                count=len(kinds),
            ),
            translatable("Give at least one job, and the same settings to all."),
        )
    job = jobs[0]
    recordings = []
    for number, one in enumerate(jobs, 1):
        say(phrase("prompt {number} of {total} in full", number=number, total=len(jobs)))
        recordings.append(record(model, one))
    family, sampler = type(model.model).__name__, sampler_name(sampler_object(job.sampler_name))

    def plan_of(actions: Actions) -> Plan:
        return Plan(family, sampler, job.scheduler, job.cfg, actions, budget)

    tried, limit, best = [0], budget, None

    def count() -> None:
        tried[0] += 1

    for number in range(_ROUNDS):
        say(phrase("search {number} of {total}", number=number + 1, total=_ROUNDS))
        path = search(model, recordings, plan_of, job.cfg > 1.0, limit, count)
        found, inside = _verified(model, recordings, path, plan_of, budget)
        if best is None or found.evaluations < best.evaluations:
            best = found
        correction = min(budget / found.share, _BOLDEST) if found.share else _BOLDEST
        if not inside or not limit or correction < _WORTH_IT:
            break
        limit *= correction
    assert best is not None, "there is at least one round"
    return Calibration(plan_of(best.actions), best.evaluations, best.share, tried[0])


def _verified(
    model: ModelPatcher,
    recordings: Sequence[Recording],
    path: Sequence[Candidate],
    plan_of: Callable[[Actions], Plan],
    budget: float,
) -> tuple[Candidate, bool]:
    """Return the last plan of a path that is inside of the budget when it is run for real, and whether none failed."""
    for candidate in reversed(path):
        clone = with_plan(model, plan_of(candidate.actions))
        shares, evaluations = [], 0.0
        for recording in recordings:
            shares.append(recording.share(drawn(clone, recording.job, recording.job.seed)))
            evaluations += evaluations_of(clone) / len(recordings)
            if shares[-1] > budget:
                break
        else:
            return Candidate(candidate.actions, max(shares), evaluations), candidate is path[-1]
    raise AssertionError("computing every step is a plan too, and moves nothing")
