"""What is said of a workflow's speed. Expected and measured never use the same words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...core.phrases import Phrase, data, phrase
from ...optimizers.hosts.comfyui.reporting import Payload
from ...workbench.expectation.expect import Probed, Range
from ...workbench.measurement.measure import Comparison
from ...workbench.measurement.verdict_text import fraction, late_text, of_a_seed_change, speed_text

STAGES = {
    "steps": phrase("steps"),
    "loading": phrase("loading"),
    "compiling": phrase("compiling"),
    "text": phrase("text"),
    "vae": phrase("VAE"),
    "rest": phrase("the rest"),
}
"""The stages of a run, in words."""

_KINDS = {
    "loading": "loading",
    "compiling": "compiling",
    "textEncoding": "text",
    "samplingRun": "steps",
    "decoding": "vae",
}
"""Stages by the page's kinds of nodes, see ``KINDS`` in web/js/timeline.js; all others are the rest."""


def by_stage(kinds: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of each stage, from those of a run's nodes by kind."""
    seconds: dict[str, float] = {}
    for kind, each in kinds.items():
        stage = _KINDS.get(kind, "rest")
        seconds[stage] = seconds.get(stage, 0.0) + each
    return seconds


def told(text: str) -> Payload:
    """Return ``Told`` in web/js/payloads.d.ts: a sentence, and the same as data for other languages."""
    return {"text": str(text), "phrase": data(text)}


def before_any_run(ranges: Sequence[Range]) -> Phrase:
    """Return what is expected of Reuse Steps on all wires, from other models."""
    if not ranges:
        return phrase("How much faster is known after one run: nothing is measured here yet.")
    low, high = min(one.low for one in ranges), max(one.high for one in ranges)
    return phrase(
        "Expected {low:.1f}x to {high:.1f}x, from other models with so many steps. Nothing is measured here yet.",
        low=low,
        high=high,
    )


def where_time_went(seconds: Mapping[str, float]) -> Phrase:
    """Return e.g. ``This run took 271 s: steps 84 %, VAE 11 %, loading 5 %``, from seconds by part."""
    whole = sum(seconds.values()) or 1.0
    parts: Phrase | None = None
    for name in sorted(seconds, key=lambda name: (name == "rest", -seconds[name])):
        share = seconds[name] / whole
        if share < 0.005:
            continue
        part = phrase("{part} {share:.0%}", part=STAGES[name], share=share)
        parts = part if parts is None else phrase("{parts}, {part}", parts=parts, part=part)
    return phrase("This run took {seconds:.3g} s: {parts}", seconds=whole, parts=parts or "")


def left_open(found: Sequence[tuple[str, Probed]], offered: bool, stopped: bool) -> list[Phrase]:
    """Return what a probe could not tell; where nothing is ``offered``, why.

    ``found`` has each candidate of each sampler, with that sampler's MODEL wire: one that another sampler on the wire
    tried is not open. Where somebody ``stopped`` the run or its probe, that is the reason for all that was not tried.
    """
    tried = {(wire, one.name) for wire, one in found if one.points}
    left = [one.name for wire, one in found if one.untried and (wire, one.name) not in tried]
    untried = ", ".join(dict.fromkeys(left))
    unclear = ", ".join(dict.fromkeys(one.name for _, one in found if one.unclear and not offered))
    lines = []
    if unclear:
        lines.append(
            phrase(
                "Whether it is faster with {names} is not clear from so few evaluations. Compare Models measures it.",
                names=unclear,
            )
        )
    if stopped:
        lines.append(phrase("It was stopped before its end, so more may be possible than is said here."))
    elif untried:
        lines.append(
            phrase(
                "Not tried, as the time for trying was spent on others: {names}. Compare Models measures it.",
                names=untried,
            )
        )
    if not offered and not lines:
        lines.append(phrase("Nothing is expected to make it faster with a picture as near as you chose."))
    return lines


def expected_speed(speed: Range) -> Phrase:
    """Return how much faster a whole run is expected to get."""
    return phrase(
        "expected {likely:#.2g}x ({low:#.2g} to {high:#.2g})", likely=speed.likely, low=speed.low, high=speed.high
    )


def expected_steps(steps: Range, distance: Range) -> Phrase:
    """Return what is expected of the steps alone, and of the picture."""
    if distance.high == 0:
        return phrase(
            "its steps {likely:#.2g}x ({low:#.2g} to {high:#.2g}), the same picture",
            likely=steps.likely,
            low=steps.low,
            high=steps.high,
        )
    return phrase(
        "its steps {likely:#.2g}x ({low:#.2g} to {high:#.2g}), difference {share} ({least} to {most})",
        likely=steps.likely,
        low=steps.low,
        high=steps.high,
        share=of_a_seed_change(distance.likely),
        least=fraction(distance.low),
        most=fraction(distance.high),
    )


def proved(found: Comparison, work: float, pictures: int) -> Phrase:
    """Return what a proof has measured: ``work`` is the share of the network's evaluations that was left."""
    speed, share = speed_text(found.evidence.speedup), found.verdict.seed_share
    if share is None:  # another seed draws the same picture
        return phrase(
            "Measured, steps of {pictures} pictures: {speed}, with {work:.0%} of the evaluations.",
            pictures=pictures,
            speed=speed,
            work=work,
        )
    measured = phrase(
        "Measured, steps of {pictures} pictures: {speed}, with {work:.0%} of the evaluations; difference {share} in "
        "the farthest.",
        pictures=pictures,
        speed=speed,
        work=work,
        share=of_a_seed_change(share),
    )
    control = found.evidence.control
    if control is None:
        return measured
    late = late_text(control, found.evidence.seed)
    if found.evidence.as_good:
        return phrase(
            "{measured} Without these nodes {control}: you do not need them.", measured=measured, control=late
        )
    return phrase("{measured} Without these nodes {control}.", measured=measured, control=late)
