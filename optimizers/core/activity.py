"""What a technique did during a sampling run: where it was active, how often, and where it was not.

A technique counts while the model runs; the host adds up all calls of a run and asks the technique for a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .not_copied import NotCopied


@dataclass
class Activity(NotCopied):
    """Counts of one technique in one model call, or summed over a run, by place: a block or an attention call site.

    Plain dicts, because techniques count from inside of code that torch.compile traces. ``fallbacks`` count by reason
    how often it stepped aside; ``skipped`` has the reason for each place where it would not pay; ``faults`` what its
    guard has found, in order.
    """

    model_calls: int = 0
    used: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, tuple[int, int]] = field(default_factory=dict)
    fallbacks: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    faults: dict[str, None] = field(default_factory=dict)

    def use(self, place: str, tokens_before: int = 0, tokens_after: int = 0, times: int = 1) -> None:
        self.used[place] = self.used.get(place, 0) + times
        if tokens_before != tokens_after:
            self.tokens[place] = (tokens_before, tokens_after)

    def fall_back(self, reason: str, times: int = 1) -> None:
        self.fallbacks[reason] = self.fallbacks.get(reason, 0) + times

    def skip(self, place: str, reason: str) -> None:
        self.skipped[place] = reason

    def add(self, other: Activity) -> None:
        self.faults.update(other.faults)
        self.model_calls += other.model_calls
        for place, count in other.used.items():
            self.used[place] = self.used.get(place, 0) + count
        for reason, count in other.fallbacks.items():
            self.fallbacks[reason] = self.fallbacks.get(reason, 0) + count
        self.tokens.update(other.tokens)
        self.skipped.update(other.skipped)

    @property
    def fallback_count(self) -> int:
        return sum(self.fallbacks.values())

    @property
    def use_count(self) -> int:
        return sum(self.used.values())

    def fallback_lines(self) -> tuple[str, ...]:
        """Return one line for each reason to step aside, most frequent first."""
        ordered = sorted(self.fallbacks.items(), key=lambda item: -item[1])
        return tuple(f"{count} x fallback: {reason}" for reason, count in ordered)

    def skipped_lines(self) -> tuple[str, ...]:
        """Return one line for each reason to skip places, with how many places."""
        reasons = list(self.skipped.values())
        counts = {reason: reasons.count(reason) for reason in reasons}
        return tuple(f"skipped {n} block{'' if n == 1 else 's'}: {reason}" for reason, n in counts.items())


@dataclass(frozen=True)
class Summary:
    """What one technique did, as data for the browser, the report and the log.

    Attributes:
        state: ``active``; ``partly`` (some calls fell back); ``inactive`` (nothing happened); ``waiting`` (not run);
            ``working`` (a run goes on); ``failed``.
        headline: for a badge: one clause, without ``;``; a :class:`~.phrases.Phrase` where it can be translated.
        counts: by name, e.g. ``{"blocks": 3, "eligible": 7, "fallbacks": 0}``.
        details: further lines, e.g. each reason for a fallback with its count.
        neutral: as of the technique's policy.
    """

    state: str
    headline: str
    counts: Mapping[str, float] = field(default_factory=dict)
    details: tuple[str, ...] = ()
    neutral: bool = False

    @property
    def text(self) -> str:
        count = self.counts.get("fallbacks", 0)
        return f"{self.headline}; {count:g} fallback{'' if count == 1 else 's'}" if count else self.headline

    @property
    def line(self) -> str:
        """The text, and the first reason where nothing happened."""
        why = self.details[:1] if self.state == "inactive" else ()
        return ": ".join([self.text, *why])


def with_faults(summary: Summary, activity: Activity) -> Summary:
    """Return ``summary`` with what the guard has found: the last of it is what a badge shows."""
    if not activity.faults:
        return summary
    *before, last = activity.faults
    return replace(summary, state="partly", headline=last, details=(*before, summary.headline, *summary.details))
