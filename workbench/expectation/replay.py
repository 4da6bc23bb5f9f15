"""What Reuse Steps would have done to a run that was observed. No evaluation of the network.

Of fewer steps a run tells nothing: the predictions along its path are smooth, and what a longer step makes of them is
the network's answer to other latents.
"""

from __future__ import annotations

from torch import Tensor

from ...optimizers.step_reuse.history import Place
from ...optimizers.step_reuse.policy import StepReusePolicy
from ...optimizers.step_reuse.rule import Action
from ...optimizers.step_reuse.samplers import sampler_of
from ...optimizers.step_reuse.settings import StepReuseSettings
from ...optimizers.step_reuse.solvers import Solver
from .sampling import Replayed, Sampling, Seen


def replay(sampling: Sampling, budget: float) -> Replayed:
    """Return what Reuse Steps with a ``budget`` would have done: its own rule decides about each evaluation."""
    if budget not in sampling.replayed:
        sampling.replayed[budget] = _replayed(sampling, budget)
    return sampling.replayed[budget]


def _replayed(sampling: Sampling, budget: float) -> Replayed:
    count, policy = sampling.evaluations, StepReusePolicy(StepReuseSettings(budget=budget), "")
    rule = policy.rule_for(
        sampling.levels,
        sampling.solver,
        sampling.flow,
        sampling.refusals,
        sampling.sketch.split,
    )
    if rule is None:
        return Replayed(count, count, policy.outcome.notes[0])
    drawn = _Latent(sampler_of(sampling.solver).update)
    for seen in sampling.seen:
        place, latent = rule.place_of(seen.sigma), drawn.at(seen)
        if seen.anew:
            rule.forget()
        action = rule.begin(place)
        guided = rule.forecast(latent) if action is Action.FORECAST else seen.guided
        if seen.positive is not None:
            rule.first_pass(seen.positive)
        drawn.step(place, rule.end(latent, guided))
    rule.read()
    return Replayed(count - rule.outcome.forecast, count)


class _Latent:
    """The latent of a run that is drawn anew from its beginning; without the solver's weights it is that of the run."""

    def __init__(self, update: Solver | None) -> None:
        self._update = update
        self._last: tuple[Place, Tensor] | None = None
        self.latent: Tensor | None = None

    def at(self, seen: Seen) -> Tensor:
        if self.latent is None or self._update is None:
            self.latent = seen.latent
        return self.latent

    def step(self, place: Place, given: Tensor) -> None:
        if self._update is None or self.latent is None:
            return
        last = self._last
        weights = self._update(place, None if last is None else last[0])
        moved = self.latent * weights.keep + given * weights.now
        self.latent = moved if last is None else moved + last[1] * weights.before
        self._last = (place, given)
