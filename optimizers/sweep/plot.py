"""The plot of a sweep: speed against difference, drawn with Pillow, which every ComfyUI has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from .results import Result, pareto_front

_SIZE = (1120, 720)
_AREA = (96, 84, 800, 640)
"""Left, top, right, bottom of the plot; to the right of it stands the list of the best trades."""

_LIST_WIDTH = 256

_INK, _PALE, _GRID, _PAPER = (32, 33, 36), (120, 124, 132), (226, 228, 232), (255, 255, 255)
_ON, _OFF = (24, 106, 190), (176, 182, 192)


def pareto_picture(results: Sequence[Result], title: str = "") -> Image.Image:
    """Return a scatter plot of all measured cells; what no other cell beats is numbered and joined by a line.

    The circles' area is the peak memory. Up and to the left is better.

    Args:
        results: of one sweep; cells that were not measured are counted below the plot.
        title: one line above it.
    """
    image = Image.new("RGB", _SIZE, _PAPER)
    draw = ImageDraw.Draw(image)
    text, small, large = (ImageFont.load_default(size) for size in (16, 13, 22))
    draw.text((24, 20), _shorten(title or "Speed against difference", draw, large, 1060), _INK, large)
    measured = [one for one in results if one.speedup is not None and one.difference is not None]
    front = pareto_front(results)
    if measured:
        _draw_points(draw, measured, front, small)
        _draw_list(draw, front, _changing(results), text, small)
    else:
        draw.text((_AREA[0], 300), "Nothing could be measured.", _INK, text)
    missing = [one.state for one in results if one.speedup is None]
    note = f"{len(measured)} measured"
    note += "".join(f", {missing.count(state)} {state}" for state in dict.fromkeys(missing))
    note += "; circles: peak memory" if any(one.memory_bytes for one in measured) else ""
    draw.text((_AREA[0], 692), note, _PALE, small)
    return image


def _draw_points(draw: Any, measured: Sequence[Result], front: Sequence[Result], font: Any) -> None:
    left, top, right, bottom = _AREA
    across = _scale([one.difference or 0 for one in measured] + [0.0], left, right)
    upward = _scale([one.speedup or 0 for one in measured] + [1.0], bottom, top)
    for value, place in across.ticks:
        draw.line((place, top, place, bottom), _GRID)
        draw.text((place, bottom + 16), f"{value:g}", _PALE, font, anchor="ma")
    for value, place in upward.ticks:
        draw.line((left, place, right, place), _INK if value == 1 else _GRID)
        draw.text((left - 16, place), f"{value:g}x", _PALE, font, anchor="rm")
    middle = (left + right) // 2
    draw.text((middle, bottom + 36), "difference, as a share of what another seed changes", _INK, font, anchor="ma")
    draw.text((left, top - 22), "speed-up over the same picture without the optimizations", _INK, font)
    most = max((one.memory_bytes or 0 for one in measured), default=0)
    places = {id(one): (across(one.difference or 0), upward(one.speedup or 0)) for one in measured}
    # A front belongs to one size and batch: speed-ups of different pictures are not joined.
    for group in _by_picture(front):
        line = [places[id(one)] for one in group]
        if len(line) > 1:
            draw.line(line, _ON, 2)
    best = {id(one) for one in front}
    for one in sorted(measured, key=lambda item: -(item.memory_bytes or 0)):
        x, y = places[id(one)]
        radius = 5 + (9 * math.sqrt((one.memory_bytes or 0) / most) if most else 2)
        color = _ON if id(one) in best else _OFF
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), color, _PAPER)
    for number, one in enumerate(front, 1):
        draw.text(places[id(one)], str(number), _PAPER, font, anchor="mm")


def _draw_list(draw: Any, front: Sequence[Result], names: set[str], text: Any, small: Any) -> None:
    x, y = 828, _AREA[1]
    draw.text((x, y - 22), "Best trades", _INK, text)
    for number in range(len(front), 0, -1):  # the fastest first
        one = front[number - 1]
        if y > 590:
            draw.text((x, y), f"and {number} more", _PALE, small)
            return
        draw.text((x, y), f"{number}   {one.speedup:.2f}x, difference {one.difference:.3f}", _ON, small)
        for line in _lines(one, names, draw, small):
            y += 17
            draw.text((x + 22, y), line, _PALE, small)
        y += 26


def _changing(results: Sequence[Result]) -> set[str]:
    """Return the names of the settings that are not the same everywhere."""
    names = {name for one in results for name in one.cell}
    return {name for name in names if len({str(one.cell.get(name)) for one in results}) > 1} or names


def _lines(one: Result, names: set[str], draw: Any, font: Any) -> list[str]:
    """Return a cell's settings of these names in at most three lines of the list's width."""
    lines = [""]
    for name, value in ((name, value) for name, value in one.cell.items() if name in names):
        part = f"{name.rpartition('.')[2]} {value}"
        joined = f"{lines[-1]}, {part}" if lines[-1] else part
        if draw.textlength(joined, font) <= _LIST_WIDTH:
            lines[-1] = joined
        else:
            lines.append(_shorten(part, draw, font, _LIST_WIDTH))
    return lines[:3]


def _by_picture(front: Sequence[Result]) -> list[list[Result]]:
    groups: dict[tuple[Any, Any], list[Result]] = {}
    for one in front:
        groups.setdefault((one.cell.get("size"), one.cell.get("batch")), []).append(one)
    return list(groups.values())


class _scale:  # noqa: N801 - used as a function
    """Maps values to pixels, over a range that ends at round numbers."""

    def __init__(self, values: Sequence[float], start: int, end: int) -> None:
        low, high = min(values), max(values)
        step = _round_step((high - low) / 5 or 0.1)
        self._low = math.floor(low / step + 1e-9) * step
        self._high = max(math.ceil(high / step - 1e-9) * step, self._low + step)
        self._start, self._end = start, end
        count = round((self._high - self._low) / step)
        marks = [round(self._low + step * index, 10) for index in range(count + 1)]
        self.ticks = [(value, self(value)) for value in marks]

    def __call__(self, value: float) -> float:
        share = (value - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)


def _round_step(step: float) -> float:
    """Return the next larger of 1, 2, 5 times a power of ten."""
    power: float = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * 0.999)


def _shorten(text: str, draw: Any, font: Any, width: int) -> str:
    if draw.textlength(text, font) <= width:
        return text
    while text and draw.textlength(text + "…", font) > width:
        text = text[:-1]
    return text + "…"
