"""Where the time of a workflow's pictures goes, and what can be done about each part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from ...optimizers.core.phrases import Phrase, phrase
from ...optimizers.in_comfyui.run.reporting import Payload
from .kept_runs import KeptRun, Trial
from .plan import Plan
from .sentences import told
from .workflow import Workflow

SEEN = 0.02
"""Parts with less than this share of the time are shown together."""

_ACTS_ON = {"samplingRun": "model", "decoding": "vae"}
"""The inputs of the nodes that act on a part, by its kind."""

_NOTHING = {
    "samplingRun": phrase("Nothing: each node that could help is there already."),
    "loading": phrase("Nothing to gain: files are read once, not for each picture."),
    "compiling": phrase("Nothing to gain: compiling happens once for each model and size."),
    "textEncoding": phrase("Nothing to gain while texts are new: each is encoded once."),
    "saving": phrase("Nothing to gain: the file is written when the picture is done."),
}
"""Why nothing acts on a part, by its kind."""

Past = Sequence[tuple[str, Trial]]
"""What was tried, each with the day; an empty one for what was tried just now."""


def picture_time(workflow: Workflow, own: Sequence[KeptRun], plans: Sequence[Plan], past: Past) -> Payload | None:
    """Return ``PictureTime`` in web/js/payloads.d.ts, of the last of the workflow's kept runs; None without one."""
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
    return RunTime(workflow, own[-1].parts, plans, past, own[-1]).payload(sentence)


@dataclass(frozen=True)
class RunTime:
    """The ``parts`` of a run by kind and node, and what is known of each: the ``run`` as it was kept."""

    workflow: Workflow
    parts: Mapping[str, Mapping[str, float]]
    plans: Sequence[Plan]
    past: Past
    run: KeptRun | None = None

    def payload(self, sentence: Phrase) -> Payload:
        """Return ``PictureTime``: the longest part first, each with what acts on it."""
        return {"sentence": told(sentence), "parts": sorted(self._rows(), key=lambda part: -float(part["seconds"]))}

    def _rows(self) -> Iterator[Payload]:
        least = SEEN * sum(sum(nodes.values()) for nodes in self.parts.values())
        rest, remedy = 0.0, phrase("Nothing to gain: each of these parts takes less than 2 % of the time.")
        for kind, nodes in self.parts.items():
            of_nodes = kind in ("samplingRun", "otherNodes", "controlnet")
            for id, seconds in nodes.items() if of_nodes else [("", sum(nodes.values()))]:
                name = self.workflow.title(id) if id in self.workflow else ""
                if seconds < least or not seconds:
                    rest += seconds
                elif kind == "otherNodes" and not name:  # in one row with the small parts: both read "other nodes"
                    rest, remedy = rest + seconds, self._remedy(kind, id)
                else:
                    yield _part(kind, name, seconds, self._remedy(kind, id))
        if rest:
            yield _part("otherNodes", "", rest, remedy)

    def _remedy(self, kind: str, id: str) -> Phrase:
        run, nothing = self.run, _NOTHING.get(kind, phrase("No node of this pack speeds this part up."))
        if kind in _ACTS_ON:
            return self._acting(_ACTS_ON[kind], id) or nothing
        if kind == "loading" and run and run.again:
            return phrase("{why}", why=run.again)
        if kind == "loading" and run and not run.loaded:
            return phrase("Nothing known helps: ComfyUI moves weights back to the device.")
        if kind == "otherNodes" and not id and "textEncoding" not in self.parts:
            return phrase("Not measured apart: text encoding, loading, saving and other nodes.")
        return nothing

    def _acting(self, input: str, sampler: str) -> Phrase | None:
        """Return what can be tried on VAEs, or models of a sampler, of all where it has no id, and what became of it.

        Where that is nothing, why not; None where nothing acts on it.
        """
        plans = {
            str(number): plan
            for number, plan in enumerate(self.plans)
            if plan.link.input == input and (not sampler or sampler in plan.link.samplers)
        }
        tried = [(day, one) for day, one in self.past if one.link in plans]
        known = {(one.link, one.name) for _, one in tried}
        fresh = dict.fromkeys(name for at, plan in plans.items() for name in plan.titles if (at, name) not in known)
        found = [phrase("Can be tried: {names}.", names=", ".join(fresh))] if fresh else []
        for said, day in dict.fromkeys((one.sentence, day) for day, one in tried if one.said):
            found.append(phrase("{what} ({day})", what=said, day=day) if day else phrase("{what}", what=said))
        found = found or [*dict.fromkeys(note for plan in plans.values() for note in plan.notes)]
        if found or not plans:
            return reduce(lambda one, other: phrase("{one} {other}", one=one, other=other), found) if found else None
        return _NOTHING["samplingRun"]


def _part(kind: str, name: str, seconds: float, remedy: Phrase) -> Payload:
    return {"kind": kind, "name": name, "seconds": seconds, "remedy": told(remedy)}
