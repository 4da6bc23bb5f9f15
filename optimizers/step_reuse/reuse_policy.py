"""The policy of Reuse Steps: when a run is left alone, and the report of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from ..core.activity import Activity, Summary
from ..core.choices import HARDLY_VISIBLE
from ..core.phrases import Phrase, phrase
from ..core.technique import STEP_REUSE, Policy
from ..models.samplers import SAMPLERS, sampler_of
from .budget import Outcome
from .long_rule import LongRule
from .parts import Split, undivided
from .reuse_settings import FEWEST_STEPS, SHORT, StepReuseSettings
from .rule import Rule
from .short_rule import CLEAN, ShortRule

_OF_MANY = "one in ten measured pictures was more than three times as far"
_OF_FEW = f"up to {SHORT} steps one in ten measured pictures was more than 1.5 times as far"
_OF_ONE = "of the run with the most skipped steps:"


def few_steps(noise_levels: Sequence[float], solver: str | None) -> bool:
    """Return whether the rule of few steps decides about a run, if any does."""
    steps, known = len(noise_levels) - 1, sampler_of(solver).update is not None
    return steps < SHORT or (steps == SHORT and known and noise_levels[-1] <= CLEAN)


class StepReusePolicy(Policy):
    """Decisions and reports of Reuse Steps in all hosts; ``unasked`` is the reason given where no run asked for it."""

    kind = STEP_REUSE
    title = "Reuse Steps"
    uneven = True
    known_steps = ", ".join(name for name, sampler in SAMPLERS.items() if sampler.update is not None)
    """The samplers for runs of few steps, by the host's names."""

    def __init__(self, settings: StepReuseSettings, unasked: str) -> None:
        self.settings = settings
        self.unasked = unasked
        self.outcome = Outcome()

    def began(self) -> None:
        """Forget the last run: in this one another network may be asked."""
        self.outcome = Outcome()

    def rule_for(
        self,
        noise_levels: Sequence[float],
        solver: str | None,
        flow: bool,
        refusals: Sequence[str] = (),
        split: Split = undivided,
    ) -> Rule | None:
        """Return the rule of a run; None where nothing can be left out, with the reasons in ``outcome``.

        ``refusals``: why the host leaves the run alone; the rest as for ``Rule``.
        """
        steps = max(len(noise_levels) - 1, 0)
        notes = list(refusals)
        if steps < FEWEST_STEPS and not refusals:  # where a host refuses, it may not know the levels
            too_few = f"{steps} steps are too few to skip any: each changes the picture too much"
            notes.append(f"{too_few} (it takes at least {FEWEST_STEPS})")
        if any(here < after for here, after in pairwise(noise_levels)):
            notes.append("this schedule adds noise in its steps, and such steps cannot be forecast")
        elif 0.0 in noise_levels[:-1] or any(here == after for here, after in pairwise(noise_levels)):
            notes.append("in some steps of this schedule the noise does not change, and such steps cannot be forecast")
        few = few_steps(noise_levels, solver)
        if few and not notes:
            if noise_levels[-1] > CLEAN:
                notes.append(
                    f"a run of at most {SHORT - 1} steps must end without noise, and this run leaves some to another"
                )
            if sampler_of(solver).update is None:
                known = f"a sampler whose steps are known and add no noise ({self.known_steps})"
                notes.append(f"a run of at most {SHORT - 1} steps needs {known}")
        if notes:
            self.outcome = Outcome(steps, notes=notes)
            return None
        rule = (ShortRule if few else LongRule)(self.settings, noise_levels, solver, flow, split)
        self.outcome = rule.outcome
        return rule

    def clauses(self) -> tuple[str, ...]:
        return self.settings.clauses()

    @property
    def beyond(self) -> bool:
        """Whether the last run is estimated to be farther than promised; what cannot be seen is no alarm."""
        return self.outcome.share > max(self.settings.budget, HARDLY_VISIBLE)

    def together(self, one: Summary, other: Summary, activity: Activity) -> Summary:
        """Return the evaluations of both, and the details of the one in which most was left out."""
        runs = (one, other)
        most = max(runs, key=lambda run: run.counts.get("forecast", 0))
        counts = {name: sum(run.counts.get(name, 0) for run in runs) for name in most.counts}
        if not counts.get("forecast"):
            return replace(most, counts=counts)
        state = "partly" if any(run.state == "partly" for run in runs) else "active"
        details = most.details if _OF_ONE in most.details else (_OF_ONE, *most.details)
        return Summary(state, _headline(counts), counts, details)

    def summarize(self, activity: Activity) -> Summary:
        found = self.outcome
        counts = {"evaluations": found.evaluations, "computed": found.computed, "forecast": found.forecast}
        details = [*found.notes] if found.notes or found.evaluations else [self.unasked]
        if not found.forecast:
            if found.evaluations:
                details.append("no skip fits into the budget: a larger budget would help")
                details.extend(_doubts(found))
            return Summary("inactive", phrase("nothing was reused"), counts, tuple(details))
        headline = _headline(counts)
        if self.beyond:
            headline = phrase("{headline}, estimate beyond the budget", headline=headline)
            details.append(
                "a later step changed more than the earlier forecasts predicted: compare the "
                "pictures, or choose a smaller budget"
            )
        about = float(f"{found.share * 100:.1g}")
        details.append(
            f"estimated distance to the picture without Reuse Steps: about {about:g} % of a seed change, "
            f"budget {self.settings.budget * 100:g} %; {_OF_FEW if found.few else _OF_MANY}"
        )
        if found.largest:
            of = f"{found.largest:.1%} of a seed change"
            details.append(f"largest error of a forecast: {of}")
        if found.parts > 1:
            details.append(f"both numbers are those of the worst of {found.parts} frames and streams, such as sound")
        as_long = max(1, int(found.steps * found.computed / max(found.evaluations, 1)))
        details.append(f"a plain run of {as_long} steps takes as long: a comparison draws that run too")
        details.extend(_doubts(found))
        return Summary("partly" if self.beyond else "active", headline, counts, tuple(details))


def _headline(counts: Mapping[str, float]) -> Phrase:
    done = phrase("{count} of {total} evaluations computed", count=counts["computed"], total=counts["evaluations"])
    return phrase("{headline}, {count} forecast", headline=done, count=counts["forecast"])


def _doubts(found: Outcome) -> Iterator[str]:
    if not found.measured:
        yield "this sampler was not measured: the rule skips fewer steps, and its estimate is rough (up to 4 times)"
    if found.flow:
        yield "the rule was measured on two small transformers only: for this model its estimate is rough"
