"""The results of a sweep: rows, the best one, and a table of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..measurement.evidence import AS_GOOD
from ..measurement.speedup import SMALLEST_EFFECT
from .axes import Cell


@dataclass(frozen=True)
class Result:
    """One cell and what came of it.

    Attributes:
        state: ``measured``; ``out of memory``, ``not possible`` and ``broken`` (no picture) are results too.
        speedup: median over rounds of baseline time / this one's.
        low: lower end of its 95 % interval, 0 for one that says nothing, None without one; likewise ``high``.
        seconds: median of one sampling step.
        difference: of the pictures, as a share of what another seed changes (0: the same picture).
        memory_bytes: peak while sampling; None where it cannot be counted.
        control: difference of the plain model in the same time, with fewer steps or without some late noise levels,
            whichever is nearer; None if not drawn.
        control_title: what that is, e.g. ``14 steps``.
        text: the verdict in words, or why it was not possible.
    """

    cell: Cell
    state: str
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    seconds: float | None = None
    difference: float | None = None
    memory_bytes: int | None = None
    control: float | None = None
    control_title: str = ""
    text: str = ""


def best(results: Sequence[Result], largest_difference: float) -> Result | None:
    """Return the fastest result whose difference is at most ``largest_difference`` of a seed change.

    None if nothing within it is certainly faster than the baseline: where there is an interval, all of it must be.
    """
    allowed = [
        one
        for one in results
        if (one.speedup or 0) > 1 + SMALLEST_EFFECT
        and (one.low is None or one.low > 1)
        and one.difference is not None
        and one.difference <= largest_difference
    ]
    return max(allowed, key=lambda one: one.speedup or 0, default=None)


def to_markdown(results: Sequence[Result], chosen: Result | None) -> str:
    """Return a table in Markdown, fastest first; ``chosen`` is the row that became the preset.

    Under *plain, same time* stands the difference of the plain model in the same time, and what that is.
    """
    names = list(dict.fromkeys(name for one in results for name in one.cell))
    header = [*names, "speed-up", "s/step", "difference", "plain, same time", "peak memory", ""]
    lines = [" | ".join(header), " | ".join("---" for _ in header)]
    for one in sorted(results, key=lambda result: -(result.speedup or 0)):
        settings = [str(one.cell.get(name, "-")).replace("|", "\\|") for name in names]
        measured = [_format(one.speedup, "{:.2f}x"), _format(one.seconds, "{:.3f}"), _format(one.difference, "{:.3f}")]
        fewer = "-" if one.control is None else f"{one.control:.3f} ({one.control_title})"
        memory = _format(None if one.memory_bytes is None else one.memory_bytes / 2**30, "{:.2f} GiB")
        marks = ["the preset"] if one is chosen else [] if one.state == "measured" else [one.state]
        if one.control is not None and one.control <= AS_GOOD * (one.difference or 0):
            marks.append("the plain model does as well")
        lines.append(" | ".join([*settings, *measured, fewer, memory, ", but ".join(marks)]))
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def _format(value: float | None, how: str) -> str:
    return "-" if value is None else how.format(value)
