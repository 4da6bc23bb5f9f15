"""Write what the demo found as one page that needs nothing else: no script, no other file, no network."""

from __future__ import annotations

import base64
import io
import os
import platform
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from comfy_host.client import Prompt
from comfy_host.paths import commit
from drawing import Drawing, in_words
from paceline.measure.verdict import counted_text
from PIL import Image
from plot import plot

FOLDER = Path(__file__).resolve().parent
"""Has the page's frame and its style."""

_MEASURED = re.compile(r"Measured, steps of \d+ pictures: (.*)")
"""What ``tune --prove`` prints of what it has kept."""

_UNTOLD = ("too noisy to tell", "not certain yet", "in a single run", "too few for an interval")
"""What a sentence about time has in it where it tells nothing."""

_ON_THE_WAY = ("running ", "trying ", "drawing ", "Nothing was ")
"""How lines begin that are no findings."""

_LARGEST = 320
"""Pixels that a picture on the page has at most."""

_PARTS = {
    "attention": "attention",
    "linear": "matrix products",
    "convolution": "convolutions",
    "norm_elementwise": "norms and elementwise",
    "copies": "copies",
    "ours": "Paceline's own work",
    "gaps": "waiting for Python",
}


@dataclass(frozen=True)
class Tuned:
    """What ``tune`` printed, and the workflow that it wrote."""

    lines: list[str]
    workflow: Prompt

    @property
    def sentence(self) -> str:
        """What was measured of everything that was kept."""
        measured = [match[1] for line in self.lines if (match := _MEASURED.match(line))]
        return measured[-1] if measured else "Nothing is expected to be faster on this machine as it is now."

    @property
    def findings(self) -> list[str]:
        """Where the time went, what was expected of each offer, and what was measured."""
        return [line for line in self.lines if not line.startswith(_ON_THE_WAY)]


@dataclass(frozen=True)
class Found:
    """Ways to draw the same pictures: ``same_work`` as ``tuned``, and all ``points`` of the plot."""

    plain: Drawing
    tuned: Drawing
    same_work: list[Drawing]
    other_seed: Drawing
    points: list[Drawing]


@dataclass(frozen=True)
class LargePicture:
    """What Compare Models found for large pictures with Apply ToMe, and the pictures, by side."""

    model: str
    plain: Prompt
    comparison: dict[str, Any]
    pictures: dict[str, list[Image.Image]]

    @property
    def sentence(self) -> str:
        """The verdict."""
        return str(self.comparison["verdict"])

    @property
    def settings(self) -> str:
        """Size and steps."""
        size, sampler = self.plain["latent"]["inputs"], self.plain["sampler"]["inputs"]
        steps = "one step" if sampler["steps"] == 1 else f"{sampler['steps']} steps"
        return f"{size['width']} x {size['height']}, {steps} of {sampler['sampler_name']}"

    @property
    def rows(self) -> dict[str, list[Image.Image]]:
        """The pictures by what stands beside them; none after a single step, when there is little to see."""
        if self.plain["sampler"]["inputs"]["steps"] == 1:
            return {}
        names = {"baseline": "plain", "optimized": "Apply ToMe"}
        for kind, what in (("late_levels", "levels"), ("fewer_steps", "steps")):
            if control := self.comparison[kind]:
                names[kind] = f"{control['steps']} of {control['full_steps']} {what}"
        return {names[side]: shown for side, shown in self.pictures.items()}


def write(
    path: Path,
    model: str,
    plain: Prompt,
    texts: Sequence[str],
    tuned: Tuned,
    found: Found,
    few: Sequence[Drawing],
    profile: dict[str, Any],
    large: LargePicture,
) -> None:
    """Write the page."""
    headline, _, rest = tuned.sentence.rstrip(".").partition("; ")
    sampler, about, drawn = plain["sampler"]["inputs"], profile["about"], found.tuned
    # A machine that is too busy to time anything still counts right.
    counted = counted_text((drawn.evaluations, float(sampler["steps"])), drawn.worst)
    if any(words in headline for words in _UNTOLD):
        headline, rest = f"{counted}, with {drawn.title}", "; ".join(filter(None, (headline, rest)))
    rest = rest or f"counted instead of timed, {drawn.title} takes {counted}"
    frame = Template((FOLDER / "page.html").read_text(encoding="utf-8"))
    html = frame.substitute(
        style=(FOLDER / "page.css").read_text(encoding="utf-8"),
        headline=escape(headline),
        rest=escape(f"{rest[:1].upper()}{rest[1:]}."),
        model=escape(model),
        settings=escape(f"{sampler['steps']} steps of {sampler['sampler_name']}, guidance {sampler['cfg']:g}"),
        tried="".join(f"<li>{escape(line)}</li>" for line in tuned.findings),
        pictures=_pictures(texts, (found.plain, found.tuned, *found.same_work, found.other_seed)),
        few=_few(texts, few),
        tuned=escape(drawn.title),
        plot=plot(found.points, found.tuned, int(sampler["steps"])),
        parts=_parts(profile),
        large=escape(large.sentence),
        large_settings=escape(large.settings),
        large_model=escape(large.model),
        large_pictures=_large_pictures(large.rows),
        machine=escape(f"{about['device']}, {os.cpu_count()} cores"),
        versions=escape(f"ComfyUI {about['comfyui']}, torch {about['torch']}, Python {platform.python_version()}"),
        commit=escape(commit() or "unknown"),
        date=time.strftime("%Y-%m-%d %H:%M"),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html, encoding="utf-8")


def _pictures(texts: Sequence[str], columns: Sequence[Drawing]) -> str:
    """Return a table: a row for each text, a column for each way to draw, and below what it took and changed."""
    plain = columns[0]
    heads = "".join(f'<th scope="col">{escape(one.title)}</th>' for one in columns)
    rows = [f"<thead><tr><td></td>{heads}</tr></thead><tbody>"]
    for number, text in enumerate(texts):
        cells = "".join(_cell(f"{text}, {one.title}", one.pictures[number], plain.pictures[number]) for one in columns)
        rows.append(f'<tr><th scope="row">{escape(text)}</th>{cells}</tr>')
    for name, value in (
        ("evaluations of the network", lambda one: f"{one.evaluations:.1f}".removesuffix(".0")),
        ("difference, mean", lambda one: "" if one is plain else in_words(one.mean)),
        ("in the worst picture", lambda one: "" if one is plain else in_words(one.worst)),
    ):
        cells = "".join(f"<td>{value(one)}</td>" for one in columns)
        rows.append(f'<tr class="numbers"><th scope="row">{name}</th>{cells}</tr>')
    return "".join([*rows, "</tbody>"])


def _few(texts: Sequence[str], columns: Sequence[Drawing]) -> str:
    """Return the part about few steps; nothing where none were drawn."""
    if not columns:
        return ""
    plain, reused, *_ = columns
    steps = f"{plain.evaluations:.0f}"
    return (
        f"<section><h2>In {steps} steps, as today's distilled models take</h2>"
        f'<p class="verdict">{escape(counted_text((reused.evaluations, plain.evaluations), reused.worst))}.</p>'
        "<p>Reuse Steps skips single late noise levels of the same schedule; fewer steps are another schedule.</p>"
        '<div class="wide" tabindex="0" role="region" aria-label="Pictures of few steps">'
        f'<table class="pictures few">{_pictures(texts, columns)}</table></div></section>'
    )


def _large_pictures(rows: dict[str, list[Image.Image]]) -> str:
    """Return a table: a row for each way to draw, a column for each seed; nothing without pictures."""
    if not rows:
        return ""
    lines = ""
    for name, shown in rows.items():
        pairs = enumerate(zip(shown, rows["plain"], strict=True), 1)
        cells = "".join(_cell(f"{name}, {number}", picture, plain) for number, (picture, plain) in pairs)
        lines += f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>'
    table = f'<table class="pictures large"><tbody>{lines}</tbody></table>'
    return f'<div class="wide" tabindex="0" role="region" aria-label="Large pictures">{table}</div>'


def _cell(alt: str, picture: Image.Image, plain: Image.Image) -> str:
    """Return a picture, and below it what differs from the plain one, four times as strong: the style subtracts."""
    shown, reference, difference = _data(picture), _data(plain), ""
    if picture is not plain:
        both = f'<img src="{reference}" alt=""><img src="{shown}" alt="">'
        difference = f'<div class="difference"><div>{both}</div></div>'
    return f'<td><img src="{shown}" alt="{escape(alt)}">{difference}</td>'


def _data(picture: Image.Image) -> str:
    smaller = picture.copy()
    smaller.thumbnail((_LARGEST, _LARGEST), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    smaller.save(buffer, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _parts(profile: dict[str, Any]) -> str:
    """Return the parts of one step as bars."""
    slices = profile["slices"]
    parts, step = sorted(slices.items(), key=lambda part: -part[1]), sum(slices.values())
    largest, rows = parts[0][1], []
    for name, seconds in parts:
        share = seconds / step
        if share < 0.005:
            continue
        bar = f'<td class="bar"><i style="width:{seconds / largest:.1%}"></i></td>'
        rows.append(f'<tr><th scope="row">{_PARTS.get(name, name)}</th>{bar}<td>{share:.0%}</td></tr>')
    return "".join(rows)
