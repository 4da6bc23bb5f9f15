"""Results as a Markdown table in the shape of the diffusers documentation's, and as a plot."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from .measure import DONE, NOT_POSSIBLE, Cell, Measurement
from .record import Record

_INK, _PALE, _BAR, _BASE, _PAPER = (32, 33, 36), (120, 124, 132), (24, 106, 190), (176, 182, 192), (255, 255, 255)
_WIDTH, _ROW, _LEFT, _RIGHT = 1000, 26, 330, 220


def markdown(record: Record, variants: Sequence[str], title: str) -> str:
    """Return the whole report; ``variants`` are names in the order of rows, the first being the baseline."""
    lines = [f"# {title}", "", str(record.about["about"]), ""]
    machine, packages = record.setup["machine"], record.setup["versions"]
    lines += [f"- machine: {machine}", f"- versions: {', '.join(f'{name} {text}' for name, text in packages.items())}"]
    lines += [f"- steps: {record.setup['steps']}; median of {record.setup['rounds']} calls after one that is not timed"]
    lines += [f"- command: `{record.about['command']}`", ""]
    lines += ["| size | batch | variant | seconds | it/s | time saved | peak memory |", "|---|---|---|---|---|---|---|"]
    lines += [row(record, result, variants[0]) for result in ordered(record, variants)]
    reasons = [result for result in ordered(record, variants) if result.state == NOT_POSSIBLE]
    lines += [""] if reasons else []
    lines += [f"- {result.variant}, {result.size}, batch {result.batch}: {result.reason}" for result in reasons]
    return "\n".join(lines) + "\n"


def ordered(record: Record, variants: Sequence[str]) -> list[Measurement]:
    """Return the results by size and batch, variants in their order."""
    found = [result for result in record.results.values() if result.variant in variants]
    return sorted(found, key=lambda result: (result.size, result.batch, variants.index(result.variant)))


def row(record: Record, result: Measurement, baseline: str) -> str:
    """Return one result as a row of the table."""
    place = f"| {result.size} | {result.batch} | {result.variant} |"
    if result.state != DONE or result.seconds is None:
        return f"{place} {result.state} | | | |"
    memory = f"{result.peak_bytes / 2**30:.2f} GiB" if result.peak_bytes else ""
    return f"{place} {result.seconds:.3f} | {result.per_second:.2f} | {_saved(record, result, baseline)} | {memory} |"


def _saved(record: Record, result: Measurement, baseline: str) -> str:
    """Return the share of time saved against the baseline of the same size and batch, e.g. ``23.6 %``."""
    base = record.results.get(Cell(baseline, result.size, result.batch))
    if base is None or base.seconds is None or result.seconds is None or result.variant == baseline:
        return ""
    return f"{100 * (1 - result.seconds / base.seconds):.1f} %"


def plot(record: Record, variants: Sequence[str], title: str) -> Image.Image:
    """Return bars of seconds, one for each result; a group of bars has one size and batch, and its own scale."""
    results = ordered(record, variants)
    groups = list(dict.fromkeys((result.size, result.batch) for result in results))
    height = 70 + len(results) * _ROW + len(groups) * 2 * _ROW + 40
    image = Image.new("RGB", (_WIDTH, height), _PAPER)
    draw = ImageDraw.Draw(image)
    large, text = ImageFont.load_default(20), ImageFont.load_default(14)
    draw.text((20, 18), title, _INK, large)
    y = 60
    for size, batch in groups:
        draw.text((20, y), f"{size} x {size}, batch {batch}: seconds for one call", _PALE, text)
        y += _ROW
        members = [result for result in results if (result.size, result.batch) == (size, batch)]
        longest = max((result.seconds or 0.0 for result in members), default=0.0)
        for result in members:
            draw.text((_LEFT - 12, y + 3), result.variant, _INK, text, anchor="ra")
            end, label, color = _LEFT - 8, result.state, _PALE
            if result.seconds is not None:
                end = _LEFT + int((_WIDTH - _LEFT - _RIGHT) * result.seconds / longest)
                draw.rectangle((_LEFT, y, end, y + _ROW - 8), _BASE if result.variant == variants[0] else _BAR)
                share = _saved(record, result, variants[0])
                label, color = f"{result.seconds:.3f}" + (f" ({share} saved)" if share else ""), _INK
            draw.text((end + 8, y + 3), label, color, text)
            y += _ROW
        y += _ROW
    draw.text((20, height - 28), f"{record.about['about']}; {record.setup['machine']}"[:140], _PALE, text)
    return image
