"""The plot of a sweep: speed against difference, drawn with Pillow, which every ComfyUI has."""

from __future__ import annotations

import math
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from .results import Result, pareto_front

Draw = ImageDraw.ImageDraw
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

_SIZE = (1120, 720)
_AREA = (96, 84, 800, 640)
"""Left, top, right, bottom of the plot; to the right of it stands the list of the best trades."""

_LIST_WIDTH = 256

_INK, _PALE, _GRID, _PAPER = (32, 33, 36), (120, 124, 132), (226, 228, 232), (255, 255, 255)
_LIMIT = (150, 60, 60)
_ON, _OFF = (24, 106, 190), (176, 182, 192)
_COLORS = (_ON, (213, 94, 0), (0, 128, 96), (170, 80, 150), (140, 96, 20), (60, 70, 90))
"""One for each size and batch, in turn; told apart by people who do not see all colours too (after Okabe and Ito)."""

_FINER = 3
"""Lines and circles are drawn this many times larger and made smaller again, which smooths their edges."""


def pareto_picture(results: Sequence[Result], title: str = "", limit: float | None = None) -> Image.Image:
    """Return a scatter plot of all measured cells; the best trades are numbered.

    The circles' area is the peak memory, the bars are the 95 % intervals. Up and to the left is better. A ring, joined
    to a best trade, is the plain model with fewer steps in the same time: left of the circle, it is nearer.

    Args:
        results: of one sweep; cells that were not measured are counted below the plot.
        title: one line above it.
        limit: the largest difference that is allowed, drawn as a line.
    """
    image = Image.new("RGB", _SIZE, _PAPER)
    draw = ImageDraw.Draw(image)
    text, small, large = (ImageFont.load_default(size) for size in (16, 13, 22))
    draw.text((24, 20), _shorten(title or "Speed against difference", draw, large, 1060), _INK, large)
    measured = [one for one in results if one.speedup is not None and one.difference is not None]
    front = pareto_front(results)
    if measured:
        _draw_points(image, draw, measured, front, small, limit)
        _draw_list(draw, front, _changing(results), text, small)
    else:
        draw.text((_AREA[0], 300), "Nothing could be measured.", _INK, text)
    missing = [one.state for one in results if one.speedup is None]
    note = f"{len(measured)} measured"
    note += "".join(f", {missing.count(state)} {state}" for state in dict.fromkeys(missing))
    note += "; bars: 95 % interval" if any(map(_interval, measured)) else ""
    note += "; circles: peak memory" if any(one.memory_bytes for one in measured) else ""
    note += "; rings: fewer steps in the same time" if _controls(front) else ""
    draw.text((_AREA[0], 692), note, _PALE, small)
    return image


def _draw_points(
    image: Image.Image, draw: Draw, measured: Sequence[Result], front: Sequence[Result], font: Font, limit: float | None
) -> None:
    left, top, right, bottom = _AREA
    ends = [end for one in measured for end in _interval(one)]
    controls = _controls(front)
    across = _Scale([one.difference or 0 for one in measured] + [0.0, limit or 0.0, *controls.values()], left, right)
    upward = _Scale([one.speedup or 0 for one in measured] + [1.0, *ends], bottom, top)
    for value, place in across.ticks:
        draw.line((place, top, place, bottom), _GRID)
        draw.text((place, bottom + 16), f"{value:g}", _PALE, font, anchor="ma")
    for value, place in upward.ticks:
        draw.line((left, place, right, place), _INK if value == 1 else _GRID)
        draw.text((left - 16, place), f"{value:g}x", _PALE, font, anchor="rm")
    draw.text((right, upward(1.0) + 4), "1x: the plain model", _INK, font, anchor="ra")
    if limit is not None:
        draw.line((across(limit), top, across(limit), bottom), _LIMIT, 2)
        draw.text((across(limit) + 5, top), f"allowed: {limit:g}", _LIMIT, font)
    middle = (left + right) // 2
    draw.text((middle, bottom + 36), "difference, as a share of what another seed changes", _INK, font, anchor="ma")
    draw.text((left, top - 22), "speed-up over the same picture without the optimizations", _INK, font)
    most = max((one.memory_bytes or 0 for one in measured), default=0)
    places = {id(one): (across(one.difference or 0), upward(one.speedup or 0)) for one in measured}
    radii = {id(one): 5 + (9 * math.sqrt((one.memory_bytes or 0) / most) if most else 2) for one in measured}
    groups = _by_picture(front)
    colors = _colors(groups)
    large = image.resize((_SIZE[0] * _FINER, _SIZE[1] * _FINER), Image.Resampling.NEAREST)
    shapes = ImageDraw.Draw(large)
    # A front belongs to one size and batch: speed-ups of different pictures are not joined.
    for group in groups.values():
        line = [(x * _FINER, y * _FINER) for x, y in (places[id(one)] for one in group)]
        if len(line) > 1:
            shapes.line(line, colors[id(group[0])], 2 * _FINER, "curve")
    for one in front:
        if id(one) in controls:
            x, y, ring = across(controls[id(one)]), places[id(one)][1], 5
            shapes.line([(places[id(one)][0] * _FINER, y * _FINER), (x * _FINER, y * _FINER)], colors[id(one)], _FINER)
            box = [value * _FINER for value in (x - ring, y - ring, x + ring, y + ring)]
            shapes.ellipse(box, _PAPER, colors[id(one)], 2 * _FINER)
    for one in measured:
        if _interval(one):
            x, (low, high) = places[id(one)][0] * _FINER, (upward(end) * _FINER for end in _interval(one))
            shapes.line((x, low, x, high), colors.get(id(one), _OFF), 2 * _FINER)
    for one in sorted(measured, key=lambda item: -(item.memory_bytes or 0)):
        (x, y), radius = places[id(one)], radii[id(one)]
        box = [value * _FINER for value in (x - radius, y - radius, x + radius, y + radius)]
        shapes.ellipse(box, colors.get(id(one), _OFF), _PAPER, _FINER)
    image.paste(large.resize(_SIZE, Image.Resampling.BOX))
    for name, group in groups.items() if len(groups) > 1 else ():
        fastest = max(group, key=lambda one: one.speedup or 0)
        x, y = places[id(fastest)]
        away = radii[id(fastest)] + 6
        fits = x + away + draw.textlength(name, font) <= right
        place, anchor = (x + away, "lm") if fits else (x - away, "rm")
        draw.text((place, y), name, colors[id(fastest)], font, anchor=anchor, stroke_width=2, stroke_fill=_PAPER)
    for number, one in enumerate(front, 1):
        draw.text(places[id(one)], str(number), _PAPER, font, anchor="mm")


def _interval(one: Result) -> tuple[float, ...]:
    """Return the ends of a speed-up's interval, or nothing where there is none."""
    low, high = one.numbers.get("speedup_low"), one.numbers.get("speedup_high")
    return (low, high) if low and high else ()


def _controls(front: Sequence[Result]) -> dict[int, float]:
    """Return the difference that fewer steps in the same time make, for each best trade where it is known."""
    return {id(one): one.control for one in front if one.control is not None}


def _colors(groups: dict[str, list[Result]]) -> dict[int, tuple[int, int, int]]:
    return {id(one): _COLORS[n % len(_COLORS)] for n, group in enumerate(groups.values()) for one in group}


def _draw_list(draw: Draw, front: Sequence[Result], names: set[str], text: Font, small: Font) -> None:
    x, y = 828, _AREA[1]
    colors = _colors(_by_picture(front))
    draw.text((x, y - 22), "Best trades", _INK, text)
    for number in range(len(front), 0, -1):  # the fastest first
        one = front[number - 1]
        if y > 590:
            draw.text((x, y), f"and {number} more", _PALE, small)
            return
        draw.text((x, y), f"{number}   {one.speedup:.2f}x, difference {one.difference:.3f}", colors[id(one)], small)
        for line in _lines(one, names, draw, small):
            y += 17
            draw.text((x + 22, y), line, _PALE, small)
        y += 26


def _changing(results: Sequence[Result]) -> set[str]:
    """Return the names of the settings that are not the same everywhere."""
    names = {name for one in results for name in one.cell}
    return {name for name in names if len({str(one.cell.get(name)) for one in results}) > 1} or names


def _lines(one: Result, names: set[str], draw: Draw, font: Font) -> list[str]:
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


def _by_picture(front: Sequence[Result]) -> dict[str, list[Result]]:
    """Return the best trades of each size and batch, by their text."""
    groups: dict[str, list[Result]] = {}
    for one in front:
        parts = [f"{name} {one.cell[name]}" for name in ("size", "batch") if one.cell.get(name) is not None]
        groups.setdefault(", ".join(parts), []).append(one)
    return groups


class _Scale:
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


def _shorten(text: str, draw: Draw, font: Font, width: int) -> str:
    if draw.textlength(text, font) <= width:
        return text
    while text and draw.textlength(text + "…", font) > width:
        text = text[:-1]
    return text + "…"
