"""The plot of distance against work, as SVG that takes its colours from the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from comfy_host.pack import load_pack
from drawing import Drawing

load_pack()
from paceline.optimizers.core.choices import HARDLY_VISIBLE  # noqa: E402

_WIDTH, _HEIGHT = 760, 400
_LEFT, _TOP, _RIGHT, _BOTTOM = 64, 16, 640, 348
_LOWEST = 0.003
"""Distances below are drawn here."""

_TICKS = {0.003: "1/300", 0.01: "1/100", 0.03: "1/30", 0.1: "1/10", 0.3: "1/3", 1.0: "1"}


def plot(points: Sequence[Drawing], tuned: Drawing, steps: int) -> str:
    """Return curves of the mean distance by evaluations, with lines up to the worst; low and to the left is good."""
    fewest = min(one.evaluations for one in (*points, tuned))
    first = 5 * math.floor(fewest / 5)

    def across(evaluations: float) -> float:
        return _LEFT + (evaluations - first) / (steps - first) * (_RIGHT - _LEFT)

    def down(share: float) -> float:
        height = math.log(min(max(share, _LOWEST), 1.0) / _LOWEST) / math.log(1 / _LOWEST)
        return _BOTTOM - height * (_BOTTOM - _TOP)

    parts = [_line("grid", _LEFT, down(value), _RIGHT, down(value)) for value in _TICKS]
    parts += [_text("end", _LEFT - 10, down(value) + 4, label) for value, label in _TICKS.items()]
    parts += [_text("middle", across(value), _BOTTOM + 20, str(value)) for value in range(first, steps + 1, 5)]
    parts.append(_text("middle", (_LEFT + _RIGHT) / 2, _BOTTOM + 42, "evaluations of the network for one picture"))
    parts.append(_line("limit", _LEFT, down(HARDLY_VISIBLE), _RIGHT, down(HARDLY_VISIBLE)))
    parts.append(_text("end", _RIGHT, down(HARDLY_VISIBLE) - 7, "hardly visible below this line"))
    for number, method in enumerate(dict.fromkeys(one.method for one in points)):
        curve = sorted((one for one in points if one.method == method), key=lambda one: one.evaluations)
        line = " ".join(f"{across(one.evaluations):.1f},{down(one.mean):.1f}" for one in curve)
        drawn = [f'<polyline points="{line}"/>', _text("start", _RIGHT + 14, _TOP + 20 + 22 * number, method)]
        for one in curve:
            x = across(one.evaluations)
            drawn += [_line("worst", x, down(one.mean), x, down(one.worst)), _dot(x, down(one.mean), 4, one)]
        parts.append(f'<g class="series{number}">{"".join(drawn)}</g>')
    parts.append(f'<g class="tuned">{_dot(across(tuned.evaluations), down(tuned.mean), 8, tuned)}</g>')
    label = "Mean and worst distance to the plain pictures, by evaluations of the network, for each way to save work"
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _dot(x: float, y: float, radius: int, one: Drawing) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}"><title>{escape(one.summary)}</title></circle>'


def _line(kind: str, x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<line class="{kind}" x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"/>'


def _text(anchor: str, x: float, y: float, text: str) -> str:
    return f'<text text-anchor="{anchor}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'
