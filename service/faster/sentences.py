"""What is said of a workflow's speed. Expected and measured never use the same words."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...measure.expect import GAIN, Probed, Range, pays_from
from ...measure.measure import Comparison
from ...measure.verdict import counted_text, late_text, of_a_seed_change, speed_text
from ...optimizers.core.phrases import Phrase, data, phrase
from ...optimizers.in_comfyui.run.reporting import Payload

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
"""Stages by the page's kinds of nodes, see ``KINDS`` in web/js/speed/timeline.js; all others are the rest."""


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


@dataclass(frozen=True)
class Tried:
    """A candidate on a link: ``won`` are the seconds that it wins for each picture, which moves ``farthest`` so far."""

    link: str
    one: Probed
    won: float
    farthest: float


def left_open(found: Sequence[Tried], offered: Collection[str], stopped: bool) -> Iterator[Phrase]:
    """Yield what a probe could not tell of candidates that are not among the ``offered``.

    ``found`` has each candidate of each sampler and VAE: one that another sampler on the same link tried is not open.
    Where somebody ``stopped`` the run or its probe, that is the reason for all that was not tried.
    """
    tried = {(each.link, each.one.name) for each in found if each.one.points}
    left = {(each.link, each.one.name) for each in found if each.one.state == "untried"} - tried
    untried = ", ".join(sorted({name for _, name in left}))
    drowned = [each.one for each in found if each.one.state == "drowned"]
    unclear = ", ".join(dict.fromkeys(each.one.name for each in found if each.one.state == "unclear"))
    if drowned:
        yield phrase(
            "This machine is busy: the same evaluation took {times:.1f}x as long at another moment. {names} cannot be "
            "measured now. Try it again when the machine is idle.",
            times=max(one.noise for one in drowned),
            names=", ".join(dict.fromkeys(one.name for one in drowned)),
        )
    if unclear:
        yield phrase("Too few evaluations to tell whether it is faster with {names}.", names=unclear)
    if stopped:
        yield phrase("The run was stopped early, so more may be possible.")
    elif untried:
        count = len({(each.link, each.one.name) for each in found})
        yield phrase(
            "{tried} of {count} candidates were tried before the time was up. The next run begins with: {names}.",
            tried=count - len(left),
            count=count,
            names=untried,
        )
    elif not (offered or drowned or unclear):
        yield phrase("No change we know would make it faster within the limit you chose.")


def why_dropped(tried: Tried, limit: float, pictures: int) -> Phrase | None:
    """Return why a candidate is not offered; None where it is open.

    ``limit``: how far a picture may move; ``pictures``: how many are drawn.
    """
    one = tried.one
    if one.why_not and one.once:
        return phrase(
            "{name}: {why}; with {pictures} to draw, it pays if it saves more than {least:.2g} s a picture.",
            name=one.name,
            why=one.why_not,
            least=one.once / pictures,
            pictures=pictures,
        )
    if one.why_not:
        return phrase("{name}: {why}.", name=one.name, why=one.why_not)
    if one.state in ("untried", "unclear", "drowned"):
        return None
    if one.state != "faster" and one.speedup[1] >= GAIN:
        return phrase("{name}: {times:.2f}x as fast here, which can be chance.", name=one.name, times=one.speedup[1])
    if one.state != "faster":
        return phrase("{name}: {times:.2f}x as fast here, which is no gain.", name=one.name, times=one.speedup[1])
    picture = pays_from(one.once, tried.won)
    if picture > pictures:
        cost = _cost(one.once, tried.won, picture)
        return phrase("{name}: {why}.", name=one.name, why=cost)
    if tried.farthest > limit:
        return phrase("{name}: the picture could move farther than you chose.", name=one.name)
    return phrase("{name}: the whole run would gain too little.", name=one.name)


def _cost(once: float, won: float, picture: int) -> Phrase:
    return phrase(
        "costs {once:.3g} s once, and up to that after a restart; saves {won:.2g} s a picture: pays from picture "
        "{picture} on",
        once=once,
        won=won,
        picture=picture,
    )


def expected_speed(speedup: Range, once: float, won: float) -> Phrase:
    """Return how much faster a whole run is expected to get, and when what it costs once is won back."""
    expected = phrase("expected {likely:#.2g}x ({low:#.2g} to {high:#.2g})", **speedup._asdict())
    picture = pays_from(once, won)
    if picture == 1:
        return expected
    return phrase("{expected}; {cost}", expected=expected, cost=_cost(once, won, picture))


def expected_parts(whole: Range, sampling: Range | None, decoding: Range | None, distance: Range) -> Phrase:
    """Return how far the picture moves, after how much faster its steps and its VAE get, each where it is changed.

    A part that gets as many times faster as the ``whole`` run, which says that before, is left out.
    """
    text = phrase("the same picture")
    if distance.high:
        text = phrase("difference {share} at most", share=of_a_seed_change(distance.high))
    if decoding is not None and not _alike(decoding, whole):
        text = phrase("VAE {likely:#.2g}x ({low:#.2g} to {high:#.2g}), {what}", **decoding._asdict(), what=text)
    if sampling is not None and not _alike(sampling, whole):
        text = phrase("steps {likely:#.2g}x ({low:#.2g} to {high:#.2g}), {what}", **sampling._asdict(), what=text)
    return text


def _alike(one: Range, other: Range) -> bool:
    """Whether both read as one number."""
    return f"{one.likely:#.2g}" == f"{other.likely:#.2g}"


def so_far(found: Comparison, computed: tuple[float, float], seeds: int, most: int, flattened: float) -> Phrase:
    """Return what the first pairs of a proof tell, which is all but the time; ``computed`` as for ``proved``.

    ``flattened``: as of ``Sampling``; by it the first pair is judged, as there is no other seed yet.
    """
    share, contrast = found.verdict.seed_share, found.evidence.seed.contrast
    if seeds == 1:
        share = found.evidence.judged.rmse / contrast * flattened if contrast and flattened else None
    known = _counted(share, computed)
    return phrase("After {seeds} of at most {most} seeds: {known}.", seeds=seeds, most=most, known=known)


def proved(found: Comparison, computed: tuple[float, float], pictures: int, beyond: bool) -> Phrase:
    """Return what a proof has measured: ``computed`` evaluations of a picture, of so many that the plain one takes.

    ``beyond``: whether a picture is farther than was allowed.
    """
    measured = phrase(
        "Measured, steps of {pictures} pictures: {counted}. {speed}.",
        pictures=pictures,
        counted=_counted(found.verdict.seed_share, computed),
        speed=speed_text(found.evidence.speedup),
    )
    if beyond:
        measured = phrase("{measured} That is farther than you allowed.", measured=measured)
    control = found.evidence.control
    if control is None:
        return measured
    late = late_text(control, found.evidence.seed)
    if found.evidence.as_good:
        return phrase(
            "{measured} Without these nodes {control}: you do not need them.", measured=measured, control=late
        )
    return phrase("{measured} Without these nodes {control}.", measured=measured, control=late)


def _counted(share: float | None, computed: tuple[float, float]) -> Phrase:
    """Return what another load cannot change: work and distance."""
    same_work = computed[0] >= computed[1]
    return of_a_seed_change(share) if same_work and share is not None else counted_text(computed, share)
