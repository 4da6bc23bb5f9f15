"""The results of a sweep: rows, the best trades, and tables of both."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...core.choices import VISIBLE
from ..measurement.speedup import SMALLEST_EFFECT
from ..measurement.verdict_text import AS_GOOD
from .axes import Cell


@dataclass(frozen=True)
class Result:
    """One cell and what came of it.

    Attributes:
        state: ``measured``; ``out of memory``, ``not possible`` and ``broken`` (no picture) are results too.
        speedup: median over rounds of baseline time / this one's, at the same size and batch.
        seconds: median of one sampling step.
        difference: of the pictures, as a share of what another seed changes (0: the same picture).
        memory_bytes: peak while sampling; None where it cannot be counted.
        text: the verdict in words, or why it was not possible.
        numbers: further measured values, for the table.
    """

    cell: Cell
    state: str
    speedup: float | None = None
    seconds: float | None = None
    difference: float | None = None
    memory_bytes: int | None = None
    text: str = ""
    numbers: dict[str, float] = field(default_factory=dict)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The speed-up's 95 % interval; None where there is none that says anything."""
        low, high = self.numbers.get("speedup_low"), self.numbers.get("speedup_high")
        return (low, high) if low and high else None

    @property
    def control(self) -> float | None:
        """Difference of the plain model with as many steps as fit into the same time; None if not drawn."""
        return self.numbers.get("fewer_steps_difference")


def pareto_front(results: Sequence[Result]) -> list[Result]:
    """Return the best trades, fastest last: what is surely faster, and no other one beats in both speed and difference.

    Only results of one size and batch can beat each other: a speed-up is relative to that picture's own baseline.
    Another picture altogether is no trade.
    """
    measured = [one for one in results if faster(one) and one.difference is not None and one.difference <= VISIBLE]
    front = [one for one in measured if not any(_beats(other, one) for other in measured)]
    return sorted(front, key=lambda result: (result.speedup or 0, -(result.difference or 0)))


def best(results: Sequence[Result], largest_difference: float) -> Result | None:
    """Return the fastest result whose difference is at most ``largest_difference`` of a seed change.

    Settings that were measured at several sizes count with their worst size: a preset must hold for all of them. None
    if nothing within it is certainly faster than the baseline.
    """
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(str(_settings(result.cell)), []).append(result)
    slowest = [
        min(group, key=lambda one: one.speedup or 0)
        for group in groups.values()
        if all(faster(one) and one.difference is not None and one.difference <= largest_difference for one in group)
    ]
    return max(slowest, key=lambda one: one.speedup or 0, default=None)


def to_csv(results: Sequence[Result]) -> str:
    """Return a table for a spreadsheet, one row for each cell."""
    names, numbers = _columns(results)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    fixed = ["state", "speedup", "seconds_per_step", "difference_of_seed_change", "peak_memory_bytes"]
    writer.writerow([*names, *fixed, *numbers, "text"])
    for one in results:
        values = [one.state, one.speedup, one.seconds, one.difference, one.memory_bytes]
        cells = [*(one.cell.get(name) for name in names), *values, *(one.numbers.get(name) for name in numbers)]
        writer.writerow(["" if value is None else _plain(value) for value in [*cells, one.text]])
    return out.getvalue()


def _plain(value: object) -> object:
    """Return a value as a spreadsheet shows it: text that one would run as a formula begins with an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def to_markdown(results: Sequence[Result]) -> str:
    """Return a table in Markdown, fastest first; the best trades are marked.

    Under *fewer steps* stand the difference of the plain model in the same time, and its number of steps.
    """
    names, _ = _columns(results)
    front = {id(one) for one in pareto_front(results)}
    header = [*names, "speed-up", "s/step", "difference", "fewer steps", "peak memory", ""]
    lines = [" | ".join(header), " | ".join("---" for _ in header)]
    for one in sorted(results, key=lambda result: -(result.speedup or 0)):
        settings = [str(one.cell.get(name, "-")).replace("|", "\\|") for name in names]
        measured = [_format(one.speedup, "{:.2f}x"), _format(one.seconds, "{:.3f}"), _format(one.difference, "{:.3f}")]
        fewer = "-" if one.control is None else f"{one.control:.3f} ({one.numbers['fewer_steps']:g})"
        memory = _format(None if one.memory_bytes is None else one.memory_bytes / 2**30, "{:.2f} GiB")
        mark = "best trade" if id(one) in front else "" if one.state == "measured" else one.state
        mark = f"{mark}, but fewer steps do as well".removeprefix(", but ") if _fewer_steps_do(one) else mark
        lines.append(" | ".join([*settings, *measured, fewer, memory, mark]))
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def _beats(other: Result, one: Result) -> bool:
    if any(other.cell.get(name) != one.cell.get(name) for name in ("size", "batch")):
        return False
    faster, closer = (other.speedup or 0) - (one.speedup or 0), (one.difference or 0) - (other.difference or 0)
    return faster >= 0 and closer >= 0 and (faster > 0 or closer > 0)


def _fewer_steps_do(one: Result) -> bool:
    return one.control is not None and one.control <= AS_GOOD * (one.difference or 0)


def faster(one: Result) -> bool:
    """Return whether a result is surely faster than its baseline: where there is an interval, all of it must be."""
    return (one.speedup or 0) > 1 + SMALLEST_EFFECT and one.numbers.get("speedup_low", 2) > 1


def _settings(cell: Cell) -> Cell:
    return {name: value for name, value in sorted(cell.items()) if name not in ("size", "batch")}


def _columns(results: Sequence[Result]) -> tuple[list[str], list[str]]:
    names = list(dict.fromkeys(name for one in results for name in one.cell))
    return names, list(dict.fromkeys(name for one in results for name in one.numbers))


def _format(value: float | None, how: str) -> str:
    return "-" if value is None else how.format(value)
