"""The plot of a sweep: speed against difference, drawn with Pillow, which every ComfyUI has."""

from __future__ import annotations

import math
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from .axes import PICTURE, describe_cell
from .results import Result, pareto_front

Color = tuple[int, int, int]

_SIZE = (1120, 720)
_AREA = (96, 84, 1072, 640)
"""Left, top, right, bottom of the plot."""

_INK, _PALE, _GRID, _PAPER = (32, 33, 36), (120, 124, 132), (226, 228, 232), (255, 255, 255)
_LIMIT, _OFF = (150, 60, 60), (176, 182, 192)
_COLORS = ((24, 106, 190), (213, 94, 0), (0, 128, 96), (170, 80, 150), (140, 96, 20), (60, 70, 90))
"""One for each size and batch, in turn; told apart by people who do not see all colours too (after Okabe and Ito)."""


def pareto_picture(results: Sequence[Result], title: str = "", limit: float | None = None) -> Image.Image:
    """Return a scatter plot of all measured cells of a sweep; the best trades are named, the others counted below.

    The circles' area is the peak memory, the bars are the 95 % intervals. Up and to the left is better. ``limit``, the
    largest difference that is allowed, is drawn as a line.
    """
    canvas = _Canvas()
    canvas.text(24, 20, canvas.shortened(title or "Speed against difference", 1060, 22), _INK, 22)
    measured = [one for one in results if one.speedup is not None and one.difference is not None]
    if measured:
        _draw_points(canvas, measured, pareto_front(results), limit)
    else:
        canvas.text(_AREA[0], 300, "Nothing could be measured.", _INK, 16)
    missing = [one.state for one in results if one.speedup is None]
    note = f"{len(measured)} measured"
    note += "".join(f", {missing.count(state)} {state}" for state in dict.fromkeys(missing))
    note += "; bars: 95 % interval" if any(one.interval for one in measured) else ""
    note += "; circles: peak memory" if any(one.memory_bytes for one in measured) else ""
    canvas.text(_AREA[0], 692, note)
    return canvas.image.resize(_SIZE, Image.Resampling.BOX)


def _draw_points(canvas: _Canvas, measured: Sequence[Result], front: Sequence[Result], limit: float | None) -> None:
    left, top, right, bottom = _AREA
    across = _Scale([0.0, limit or 0.0, *(one.difference or 0 for one in measured)], left, right)
    ends = [end for one in measured for end in one.interval or ()]
    upward = _Scale([1.0, *ends, *(one.speedup or 0 for one in measured)], bottom, top)
    for value, place in across.ticks:
        canvas.line([(place, top), (place, bottom)], _GRID)
        canvas.text(place, bottom + 16, f"{value:g}", anchor="ma")
    for value, place in upward.ticks:
        canvas.line([(left, place), (right, place)], _INK if value == 1 else _GRID)
        canvas.text(left - 16, place, f"{value:g}x", anchor="rm")
    canvas.text(right, upward(1.0) + 4, "1x: the plain model", _INK, anchor="ra")
    if limit is not None:
        canvas.line([(across(limit), top), (across(limit), bottom)], _LIMIT, 2)
        canvas.text(across(limit) + 5, top, f"allowed: {limit:g}", _LIMIT)
    under = "difference, as a share of what another seed changes"
    canvas.text((left + right) / 2, bottom + 36, under, _INK, anchor="ma")
    canvas.text(left, top - 22, "speed-up over the same picture without the optimizations", _INK)
    most = max(one.memory_bytes or 0 for one in measured)
    places = {id(one): (across(one.difference or 0), upward(one.speedup or 0)) for one in measured}
    radii = {id(one): 5 + (9 * math.sqrt((one.memory_bytes or 0) / most) if most else 2) for one in measured}
    # A front belongs to one size and batch: speed-ups of different pictures are not joined.
    groups: dict[tuple[object, ...], list[Result]] = {}
    for one in front:
        groups.setdefault(tuple(map(one.cell.get, PICTURE)), []).append(one)
    colors = {id(one): _COLORS[n % len(_COLORS)] for n, group in enumerate(groups.values()) for one in group}
    for group in groups.values():
        canvas.line([places[id(one)] for one in group], colors[id(group[0])], 2)
    for one in sorted(measured, key=lambda item: -(item.memory_bytes or 0)):
        (x, y), color = places[id(one)], colors.get(id(one), _OFF)
        if one.interval is not None:
            canvas.line([(x, upward(end)) for end in one.interval], color, 2)
        canvas.circle(x, y, radii[id(one)], color, _PAPER)
    for one in front:
        (x, y), away, before = places[id(one)], radii[id(one)] + 6, places[id(one)][0] > (left + right) / 2
        label = canvas.shortened(describe_cell(one.cell), (x - left if before else right - x) - away)
        place, anchor = (x - away, "rm") if before else (x + away, "lm")
        canvas.text(place, y, label, colors[id(one)], anchor=anchor, halo=2)


class _Canvas:
    """A picture that is drawn three times as large as it will be, which smooths its edges."""

    def __init__(self) -> None:
        self.image = Image.new("RGB", (3 * _SIZE[0], 3 * _SIZE[1]), _PAPER)
        self._draw = ImageDraw.Draw(self.image)

    def line(self, points: Sequence[tuple[float, float]], color: Color, width: int = 1) -> None:
        self._draw.line([(3 * x, 3 * y) for x, y in points], color, 3 * width, "curve")

    def circle(self, x: float, y: float, radius: float, fill: Color, edge: Color) -> None:
        box = [3 * value for value in (x - radius, y - radius, x + radius, y + radius)]
        self._draw.ellipse(box, fill, edge, 3)

    def text(
        self, x: float, y: float, text: str, color: Color = _PALE, size: int = 13, anchor: str = "la", halo: int = 0
    ) -> None:
        font = ImageFont.load_default(3 * size)
        self._draw.text((3 * x, 3 * y), text, color, font, anchor=anchor, stroke_width=3 * halo, stroke_fill=_PAPER)

    def width(self, text: str, size: int = 13) -> float:
        return self._draw.textlength(text, ImageFont.load_default(3 * size)) / 3

    def shortened(self, text: str, width: float, size: int = 13) -> str:
        if self.width(text, size) <= width:
            return text
        while text and self.width(text + "…", size) > width:
            text = text[:-1]
        return text + "…"


class _Scale:
    def __init__(self, values: Sequence[float], start: int, end: int) -> None:
        low, high = min(values), max(values)
        wanted = (high - low) / 5 or 0.1
        power = 10.0 ** math.floor(math.log10(wanted))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= wanted * 0.999)
        self._low = math.floor(low / step + 1e-9) * step
        self._high = max(math.ceil(high / step - 1e-9) * step, self._low + step)
        self._start, self._end = start, end
        count = round((self._high - self._low) / step)
        marks = [round(self._low + step * index, 10) for index in range(count + 1)]
        self.ticks = [(value, self(value)) for value in marks]

    def __call__(self, value: float) -> float:
        share = (value - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)
