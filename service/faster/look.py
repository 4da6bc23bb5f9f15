"""Where the time of a workflow's pictures goes, and what can be done about each part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

from ...optimizers.core.phrases import Phrase, phrase
from ...optimizers.in_comfyui.run.reporting import Payload
from .kept_runs import KeptRun, Trial
from .plan import Plan
from .sentences import told
from .workflow import Workflow

SEEN = 0.02
"""Parts with less than this share of the time are shown together."""

_NOTHING = phrase("No node of this pack speeds this part up.")


Past = Sequence[tuple[str, Trial]]
"""What was tried, each with the day; an empty one for what was tried just now."""


def picture_time(
    workflow: Workflow, own: Sequence[KeptRun], before: KeptRun | None, plans: Sequence[Plan], past: Past
) -> Payload | None:
    """Return ``PictureTime`` in web/js/payloads.d.ts, of a workflow's last kept run; None without one.

    ``own`` are the kept runs of the workflow, ``before`` is the run of any workflow that was before the last of them.
    """
    if not own or not own[-1].parts:
        return None
    runs = [sum(run.seconds.values()) for run in own]
    sentence = phrase("The last picture took {seconds:.3g} s", seconds=runs[-1])
    if len(runs) > 1:
        sentence = phrase(
            "The last picture took {seconds:.3g} s ({count} pictures: {least:.3g} to {most:.3g} s)",
            seconds=runs[-1],
            count=len(runs),
            least=min(runs),
            most=max(runs),
        )
    return time_of(workflow, own[-1].parts, sentence, plans, past, own[-1], before)


def time_of(
    workflow: Workflow,
    parts: Mapping[str, Mapping[str, float]],
    sentence: Phrase,
    plans: Sequence[Plan],
    past: Past,
    run: KeptRun | None = None,
    before: KeptRun | None = None,
) -> Payload:
    """Return ``PictureTime``: the ``parts`` of a run by kind and node, the longest first, each with what acts on it."""
    rows = sorted(_rows(workflow, parts, plans, past, run, before), key=lambda part: -float(part["seconds"]))
    return {"sentence": told(sentence), "parts": rows}


def _rows(
    workflow: Workflow,
    parts: Mapping[str, Mapping[str, float]],
    plans: Sequence[Plan],
    past: Past,
    run: KeptRun | None,
    before: KeptRun | None,
) -> Iterator[Payload]:
    least, small = SEEN * sum(sum(nodes.values()) for nodes in parts.values()), 0.0

    def part(kind: str, name: str, seconds: float, remedy: Phrase) -> Payload:
        return {"kind": kind, "name": name, "seconds": seconds, "remedy": told(remedy)}

    for kind, nodes in parts.items():
        of_nodes = kind in ("samplingRun", "otherNodes", "controlnet")
        for id, seconds in nodes.items() if of_nodes else [("", sum(nodes.values()))]:
            name = workflow.title(id) if id in workflow else ""
            if seconds < least or not seconds:
                small += seconds
            elif kind == "samplingRun":
                yield part(kind, name, seconds, _of_steps(id, plans, past))
            elif not of_nodes:
                yield part(kind, "", seconds, _remedy(kind, run, before, plans, past))
            elif not id and "textEncoding" not in parts:
                unknown = phrase("Not told apart: encoding of texts, loading, saving and others.")
                yield part(kind, name, seconds, unknown)
            else:
                yield part(kind, name, seconds, _NOTHING)
    if small:
        yield part("otherNodes", "", small, phrase("Nothing: each takes less than a fiftieth."))


def _remedy(kind: str, run: KeptRun | None, before: KeptRun | None, plans: Sequence[Plan], past: Past) -> Phrase:
    if kind == "loading":
        if run and run.again:
            return phrase("{why}", why=run.again)
        if run and not run.loaded:
            return phrase("Nothing known: ComfyUI moves to the device what it had put away.")
        return phrase("Nothing: files are read once, and the next picture needs none of it.")
    if kind == "compiling":
        return phrase("Nothing: once for each model and size.")
    if kind == "textEncoding":
        return _of_text(run, before)
    if kind == "decoding":
        said = _known([number for number, plan in enumerate(plans) if plan.link.input == "vae"], plans, past)
        return said or phrase("Nothing of this pack makes a VAE faster on this device.")
    if kind == "saving":
        return phrase("Nothing: the file is written when the picture is done.")
    return _NOTHING


def _of_text(run: KeptRun | None, before: KeptRun | None) -> Phrase:
    """Return whether a text was encoded again that the run before had encoded, and why ComfyUI did not keep it."""
    if before and run and not run.loaded and run.texts and run.texts.items() <= before.texts.items():
        return phrase(
            "The same texts were encoded in the picture before, and ComfyUI has not kept them. See its start options "
            "--cache-lru and --cache-none."
        )
    return phrase("Nothing while the texts are new: each is encoded once.")


def _of_steps(sampler: str, plans: Sequence[Plan], past: Past) -> Phrase:
    """Return what can be done about a sampler, or about all of them where it has no id."""
    behind = [
        number
        for number, plan in enumerate(plans)
        if plan.link.input == "model" and (not sampler or sampler in plan.link.samplers)
    ]
    notes = [note for number in behind for note in plans[number].notes]
    nothing = phrase("Nothing: what could make it faster is there already, or changes nothing here.")
    return _known(behind, plans, past) or (notes[0] if notes else nothing)


def _known(numbers: Sequence[int], plans: Sequence[Plan], past: Past) -> Phrase | None:
    """Return what can be tried on some links, and what became of what was tried; None where there is nothing."""
    tried = [(day, one) for day, one in past if one.link in map(str, numbers)]
    known = {(one.link, one.name) for _, one in tried}
    fresh = dict.fromkeys(name for at in numbers for name in plans[at].titles if (str(at), name) not in known)
    found = [phrase("Can be tried: {names}.", names=", ".join(fresh))] if fresh else []
    for said, day in dict.fromkeys((one.sentence, day) for day, one in tried if one.said):
        found.append(phrase("{what} ({day})", what=said, day=day) if day else phrase("{what}", what=said))
    if not found:
        return None
    return reduce(lambda first, second: phrase("{first} {second}", first=first, second=second), found)
