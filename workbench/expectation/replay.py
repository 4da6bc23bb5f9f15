"""What Reuse Steps would have done to a run that was observed. No evaluation of the network.

Of fewer steps a run tells nothing: the predictions along its path are smooth, and what a longer step makes of them is
the network's answer to other latents.
"""

from __future__ import annotations

from torch import Tensor

from ...optimizers.samplers import Place, Solver, sampler_of
from ...optimizers.step_reuse.parts import Blend
from ...optimizers.step_reuse.policy import StepReusePolicy
from ...optimizers.step_reuse.settings import StepReuseSettings
from .sampling import RecordedEvaluation, Replayed, Sampling


def replay(sampling: Sampling, budget: float) -> Replayed:
    """Return what Reuse Steps with a ``budget`` would have done: its own rule decides about each evaluation."""
    if budget not in sampling.replayed:
        sampling.replayed[budget] = _replayed(sampling, budget)
    return sampling.replayed[budget]


def _replayed(sampling: Sampling, budget: float) -> Replayed:
    count, policy = sampling.evaluations, StepReusePolicy(StepReuseSettings(budget=budget), "")
    rule = policy.rule_for(sampling.levels, sampling.solver, sampling.flow, sampling.refusals, sampling.sketch.split)
    if rule is None:
        return Replayed(count, count, policy.outcome.notes[0])
    drawn = _Latent(sampler_of(sampling.solver).update, sampling.blend)
    for seen in sampling.seen:
        place, latent = rule.place_of(seen.sigma), drawn.at(seen)
        if seen.anew:
            rule.forget()
        rule.begin(place)
        guided = rule.forecast(latent) if rule.skips else seen.guided
        if seen.positive is not None:
            rule.first_pass(seen.positive)
        drawn.step(place, rule.end(latent, guided, sampling.blend) - seen.guided)
    rule.read()
    return Replayed(count - rule.outcome.forecast, count)


class _Latent:
    """The latent of a run with other predictions; without the solver's weights it is that of the run.

    ``blend``: what becomes of a prediction before the solver reads it, and of its latent before the network does.
    """

    def __init__(self, update: Solver | None, blend: Blend | None) -> None:
        self._update, self._blend = update, blend
        self._last: tuple[Place, Tensor] | None = None
        self._off: Tensor | None = None

    def at(self, seen: RecordedEvaluation) -> Tensor:
        return seen.latent if self._off is None else seen.latent + self._shared(self._off)

    def step(self, place: Place, change: Tensor) -> None:
        """Take a step with a prediction that differs by ``change``."""
        if self._update is None:
            return
        last, change = self._last, self._shared(change)
        weights = self._update(place, None if last is None else last[0])
        moved = change * weights.now if self._off is None else self._off * weights.keep + change * weights.now
        self._off = moved if last is None else moved + last[1] * weights.before
        self._last = (place, change)

    def _shared(self, change: Tensor) -> Tensor:
        return change if self._blend is None else change * self._blend.share
