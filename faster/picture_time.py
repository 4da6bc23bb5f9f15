"""Where the time of a workflow's pictures goes, from its last run, and what can be done about each part."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from ..core.phrases import Phrase, phrase
from ..optimizers.hosts.comfyui.runtime.reporting import Payload
from ..workbench.measurement.slower import KeptRun
from .plan import Plan
from .same_work import workflow_key
from .sentences import told
from .vae import VAEPlan
from .workflow import Workflow

SEEN = 0.02
"""Parts with less than this share of the time are shown together."""


@dataclass(frozen=True)
class Part:
    """Some of a picture's time, and what can be done about it.

    ``kind`` is the page's (``KINDS`` in web/js/timeline.js); ``name`` is a title of the workflow's own nodes, empty
    where the kind says enough.
    """

    kind: str
    name: str
    seconds: float
    remedy: Phrase


@dataclass(frozen=True)
class PictureTime:
    """The last run of a workflow: its parts, the largest first, and seconds of all its kept runs, the oldest first."""

    parts: tuple[Part, ...]
    runs: tuple[float, ...]

    @property
    def sentence(self) -> Phrase:
        last = sum(part.seconds for part in self.parts)
        if len(self.runs) < 2:
            return phrase("The last picture took {seconds:.3g} s", seconds=last)
        return phrase(
            "The last picture took {seconds:.3g} s ({count} pictures: {least:.3g} to {most:.3g} s)",
            seconds=last,
            count=len(self.runs),
            least=min(self.runs),
            most=max(self.runs),
        )

    def payload(self) -> Payload:
        """Return ``PictureTime`` in web/js/payloads.d.ts."""
        parts = [
            {"kind": part.kind, "name": part.name, "seconds": part.seconds, "remedy": told(part.remedy)}
            for part in self.parts
        ]
        return {"sentence": told(self.sentence), "parts": parts}


def picture_time(
    workflow: Workflow, kept: Sequence[KeptRun], plans: Sequence[Plan], vae_plans: Sequence[VAEPlan]
) -> PictureTime | None:
    """Return it from what is kept of runs; None where none of this workflow is."""
    key = workflow_key(workflow)
    own = [number for number, run in enumerate(kept) if run.workflow == key and run.parts]
    if not own:
        return None
    last = own[-1]
    run, before = kept[last], kept[last - 1] if last else None
    idle = {name for number in own for name, seconds in kept[number].given_up.items() if not seconds}
    parts = sorted(_parts(workflow, run, before, plans, vae_plans, idle), key=lambda part: -part.seconds)
    return PictureTime(tuple(parts), tuple(sum(kept[number].seconds.values()) for number in own))


def _parts(
    workflow: Workflow,
    run: KeptRun,
    before: KeptRun | None,
    plans: Sequence[Plan],
    vae_plans: Sequence[VAEPlan],
    idle: Collection[str],
) -> Iterator[Part]:
    """Yield the parts; ``idle`` are nodes that have nothing to do there."""
    whole, small = sum(sum(nodes.values()) for nodes in run.parts.values()), 0.0
    for kind, nodes in run.parts.items():
        if kind not in ("samplingRun", "otherNodes", "controlnet"):
            seconds = sum(nodes.values())
            if seconds < SEEN * whole:
                small += seconds
            else:
                yield Part(kind, "", seconds, _remedy(kind, run, before, vae_plans))
            continue
        for id, seconds in nodes.items():
            name = workflow.title(id) if id in workflow else ""
            if seconds < SEEN * whole:
                small += seconds
            elif kind == "samplingRun":
                yield Part(kind, name, seconds, _of_steps(id, plans, idle))
            elif not id:
                yield Part(
                    kind, name, seconds, phrase("Not told apart: encoding of texts, loading, saving and others.")
                )
            else:
                yield Part(kind, name, seconds, phrase("Nothing: no node of this pack acts on it."))
    if small:
        yield Part("otherNodes", "", small, phrase("Nothing: each takes less than a fiftieth."))


def _remedy(kind: str, run: KeptRun, before: KeptRun | None, vae_plans: Sequence[VAEPlan]) -> Phrase:
    if kind == "loading":
        if run.again:
            return phrase("{why}", why=run.again)
        if run.loaded:
            return phrase("Nothing: files are read once, and the next picture needs none of it.")
        return phrase("Nothing known: ComfyUI moves to the device what it had put away.")
    if kind == "compiling":
        return phrase("Nothing: once for each model and size.")
    if kind == "textEncoding":
        return _of_text(run, before)
    if kind == "decoding":
        names = list(dict.fromkeys(title for plan in vae_plans for title in plan.tries))
        return _can_be_tried(names)
    if kind == "saving":
        return phrase("Nothing: the file is written when the picture is done.")
    return phrase("Nothing: no node of this pack acts on it.")


def _of_text(run: KeptRun, before: KeptRun | None) -> Phrase:
    """Return whether a text was encoded again that the run before had encoded, and why ComfyUI did not keep it."""
    if before is not None and not run.loaded and run.texts and run.texts.items() <= before.texts.items():
        return phrase(
            "The same texts were encoded in the picture before, and ComfyUI has not kept them. See its start options "
            "--cache-lru and --cache-none."
        )
    return phrase("Nothing while the texts are new: each is encoded once.")


def _of_steps(sampler: str, plans: Sequence[Plan], idle: Collection[str]) -> Phrase:
    """Return what can be done about a sampler, or about all of them where it has no id."""
    behind = [plan for plan in plans if not sampler or sampler in plan.link.samplers]
    names = list(dict.fromkeys(title for plan in behind for title in plan.titles if title not in idle))
    notes = [note for plan in behind for note in plan.notes]
    return notes[0] if notes and not names else _can_be_tried(names)


def _can_be_tried(names: Sequence[str]) -> Phrase:
    if names:
        return phrase("Can be tried: {names}.", names=", ".join(names))
    return phrase("Nothing: what could make it faster is there already, or changes nothing here.")
