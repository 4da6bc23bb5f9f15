"""One workflow that is made faster, as a state machine: each answer has a prompt to run, or says what is known."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from time import monotonic
from typing import Any, Literal

from pydantic import Field

from ...measure.expect import Probed
from ...measure.replay import Decoding, Sampling
from ...optimizers.core.choices import CHOICES
from ...optimizers.core.errors import InvalidSetting
from ...optimizers.core.phrases import Phrase, data, phrase
from ...optimizers.in_comfyui.run.reporting import Payload
from ..apply_recipe import Nodes, behind
from ..comfyui.observer import Observer
from ..comfyui.probe import SPARE, probe
from ..recipe import Step
from .kept_runs import KeptRuns, Seconds, Sent, Trial, history
from .levers import Bypassed, Lever, needless_tiles
from .look import RunTime
from .offers import Offer, Part, make_offer, what_became
from .plan import Plan
from .prompts import Chosen, inserted, probing, proving
from .proof import Proof
from .same_work import facts_here, workflow_key
from .sentences import Tried, left_open, told, why_dropped
from .workflow import Workflow

_NOT_KEPT = phrase("a node skips steps here, or too little memory is free, so no step was kept to try it on")


class Request(Sent):
    """One question about a workflow.

    Attributes:
        do: ``look`` says what is expected, ``run`` begins, ``next`` goes on where the last prompt has ended, ``keep``
            gives the workflow with the offer's nodes, ``prove`` measures it, ``drop`` forgets all.
        prompt: the workflow in the API format; all but ``look`` and ``run`` go on with a ``job`` that knows it.
        choice: how much the picture may change, a name of ``core/choices.py``.
        pictures: how many are to be drawn: they have to win back what costs time once.
        job: id of a job that has begun.
        stopped: whether the last prompt was stopped.
        seconds: of the run that was watched.
        bypassed: nodes that are no part of the prompt, for ``look`` and ``run``.
        names: of widgets that a person sees outside of a subgraph, by ``node.input``, for ``look`` and ``run``.
    """

    do: Literal["look", "run", "next", "keep", "prove", "drop"]
    prompt: dict[str, Any] = Field(default_factory=dict)
    choice: Literal["lossless", "balanced", "fast"] = "balanced"
    pictures: Literal[1, 20, 1000] = 20
    job: str = ""
    stopped: bool = False
    seconds: Seconds = Field(default_factory=dict)
    bypassed: list[Bypassed] = Field(default_factory=list)
    names: dict[str, str] = Field(default_factory=dict, max_length=3000)


@dataclass
class Job:
    """One workflow that is made faster: what was asked, what it has of its own, and what is known by now.

    ``pictures``: how many are to be drawn, which have to win back what costs time once.

    ``measured`` are the seconds of the run, by kind and node; ``flattened`` is as of its ``Sampling``. ``probed`` has
    what was found out about each of ``seen``; ``left_open`` says what that could not tell, ``tried`` what became of
    each candidate and of the offer; ``proof`` is None before one has begun.
    """

    workflow: Workflow
    choice: str
    plans: list[Plan]
    nodes: Nodes
    pictures: int = 20
    levers: list[Lever] = field(default_factory=list)
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    observer: Observer = field(default_factory=Observer)
    probed: list[list[Probed]] = field(default_factory=list)
    probing: bool = False
    concluded: bool = False
    offer: Offer | None = None
    left_open: list[Phrase] = field(default_factory=list)
    tried: list[Trial] = field(default_factory=list)
    measured: dict[str, dict[str, float]] = field(default_factory=dict)
    flattened: float = 0.0
    proof: Proof | None = None
    lock: Any = field(default_factory=Lock)

    def next(self, request: Request) -> Payload:
        """Return what follows after a prompt has ended, or was stopped."""
        if self.proof is not None:
            return self.proved(self.proof, request.stopped)
        if self.concluded:
            return self.answer()
        if self.observer.empty:
            why = phrase("No sampler finished in this run, so nothing could be measured.")
            return job_state("look", why_not=why)
        if not self.probing:
            self.probed = [[] if self._tries(one) else self._untried(one) for one in self.seen]
            self.measured = self.by_node(request.seconds)
            if not request.stopped and any(self._tries(one) for one in self.seen):
                self.probing = True
                prompt = probing(self.workflow, [plan.link for plan in self.plans], self.id)
                return job_state("probe", self.id, prompt) | {"time": self.time}
        self.conclude(request.stopped or self.probing)  # a probe that came to its end has concluded
        return self.answer()

    def probe(self, say: Any) -> None:
        """Try each candidate on what was kept of the run; ``say`` is told the share that is done.

        Called by a node. What is known when somebody stops it stays.
        """
        try:
            self._probe(say)
        except BaseException:
            self.conclude(True)
            raise
        self.conclude(False)

    def conclude(self, stopped: bool) -> None:
        """Find the offer once, and free what was kept of the run.

        A probe that is stopped can end after the answer, or after the run was dropped.
        """
        with self.lock:
            if self.concluded or self.observer.empty:
                return
            samplings, decodings, limit = self.observer.samplings, self.observer.decodings, CHOICES[self.choice].limit
            probed = iter(self.probed)
            parts = [Part(one.link, one.sampling_seconds, next(probed), one) for one in samplings]
            parts += [Part(one.link, one.seconds, next(probed)) for one in decodings]
            self.offer = offer = make_offer(parts, self.plans, limit, self.whole, self.pictures)
            found, offered = what_became(parts, self.plans, limit), frozenset() if offer is None else offer.names
            self.tried = [self._trial(each, limit, offered) for each in found]
            self.remember("" if offer is None else phrase("{name}: {why}.", name=offer.label, why=offer.expected))
            self.left_open = [*left_open(found, offered, stopped)]
            decoded = [(self.plans[int(one.link)].link, one) for one in decodings]
            self.levers = [*self.levers, *needless_tiles(self.workflow, decoded)]
            self.flattened = max((one.flattened for one in samplings), default=0.0)
            self.concluded = True
            self.observer.forget()

    @property
    def seen(self) -> list[Sampling | Decoding]:
        """What was observed of the run: samplers, then VAEs."""
        return [*self.observer.samplings, *self.observer.decodings]

    def _tries(self, seen: Sampling | Decoding) -> dict[str, Step]:
        """Return what is tried on a part of the run."""
        known = isinstance(seen, Decoding) or seen.can_probe
        return self.plans[int(seen.link)].tries if known else {}

    def _untried(self, seen: Sampling | Decoding) -> list[Probed]:
        """Return why nothing is tried on a part of the run, for each candidate."""
        return [Probed(title, why_not=_NOT_KEPT) for title in self.plans[int(seen.link)].tries]

    def _probe(self, say: Any) -> None:
        """Try for ``SPARE`` or as long as the run took, each sampler in its part of that, VAEs in what is left.

        First comes what was not tried yet. What compiled for too long here is not tried again.
        """
        key, facts = workflow_key(self.workflow), facts_here()
        runs = [run for run in KeptRuns().read() if run.workflow == key and run.facts == facts]
        known = {one.name: one for _, one in history(runs, self.choice)}
        end = monotonic() + max(SPARE, self.whole)
        parts = [(seen, found) for seen, found in zip(self.seen, self.probed, strict=True) if self._tries(seen)]
        parts.sort(key=lambda part: known.keys() >= self._tries(part[0]).keys())
        for number, (seen, found) in enumerate(parts):
            tries, samplers = self._tries(seen), sum(isinstance(one, Sampling) for one, _ in parts[number:])
            deadline = monotonic() + max(0.0, end - monotonic()) / max(1, samplers)
            given_up = {title: known[title].once for title in tries if title in known and known[title].once}
            for title, once in given_up.items():
                why = phrase(
                    "compiling took {seconds:.0f} s or more on this machine, too long for a test", seconds=once
                )
                found.append(Probed(title, why_not=why, once=once))
            order = sorted((title for title in tries if title not in given_up), key=known.__contains__)
            ways = {title: partial(behind, tries[title], nodes=self.nodes) for title in order}
            tell = partial(lambda number, share: say((number + share) / len(parts)), number)
            probe(seen, ways, tell, found, deadline)

    def _trial(self, each: Tried, limit: float, offered: Collection[str]) -> Trial:
        one, why = each.one, why_dropped(each, limit, self.pictures)
        said = phrase("{name} is offered.", name=one.name) if one.name in offered else why or ""
        return Trial(each.link, one.name, self.choice, data(said), one.once if one.why_not else 0.0)

    def remember(self, offered: str = "") -> None:
        """Keep what was tried with the workflow's last run, and what is to be said of the offer.

        Called again when that run is kept, which may be later.
        """
        if offered and self.offer is not None:
            trial = Trial("", self.offer.label, self.choice, data(offered))
            self.tried = [*(one for one in self.tried if one.link), trial]
        KeptRuns().note(self.workflow, [one for one in self.tried if one.said])

    def answer(self) -> Payload:
        offer = None if self.offer is None else self.offer.payload
        known = {"offer": offer, "time": self.time, "levers": [one.payload for one in self.levers]}
        return job_state("answer", self.id, lines=self.left_open) | known

    @property
    def whole(self) -> float:
        """The seconds of the run."""
        return sum(sum(nodes.values()) for nodes in self.measured.values())

    @property
    def time(self) -> Payload:
        """Where the time of the run went: ``PictureTime`` in web/js/payloads.d.ts."""
        sentence = phrase("This run took {seconds:.3g} s", seconds=self.whole)
        past = [("", one) for one in self.tried]
        return RunTime(self.workflow, self.measured, self.plans, past).payload(sentence)

    def prove(self) -> Payload:
        prompt = proving(self.workflow, self.chosen, self.id, 0)
        if prompt is None:
            raise InvalidSetting("No sampler of this workflow gives a latent.", "Compare its pictures by eye.")
        self.proof = Proof(Observer(keep=False), CHOICES[self.choice], self.flattened)
        return self.answer() | {"phase": "proof", "prompt": prompt}

    def proved(self, proof: Proof, stopped: bool) -> Payload:
        """Return what follows after a pair of pictures of the proof: the next pair, or what is known."""
        state = self.answer()
        text = told(proof.text) if proof.text else None
        state["offer"] |= {"measured": text, "picture": proof.picture, "beyond": proof.beyond}
        state["offer"]["proof_pictures"] = proof.pictures
        if proof.text and not proof.over and not stopped:
            return state | {"phase": "proof", "prompt": proving(self.workflow, self.chosen, self.id, proof.seeds)}
        self.proof = None
        if proof.text and proof.over:
            self.remember(phrase("{name}: {what}", name=state["offer"]["label"], what=proof.text))
        return state | {"phase": "proved"}

    def keep(self) -> Payload:
        prompt = inserted(self.workflow, self.chosen)
        self.remember(phrase("{offer} It was inserted.", offer=self.tried[-1].sentence))
        return job_state("keep", self.id, prompt)

    @property
    def chosen(self) -> Chosen:
        """The offer's nodes."""
        if self.offer is None:
            raise InvalidSetting("There is no offer.", "Run the workflow first.")
        return self.offer.chosen

    def by_node(self, kinds: Mapping[str, float]) -> dict[str, dict[str, float]]:
        """Return the seconds of the run by kind and node, from those that the page tells and what was observed.

        The page tells weights that a sampler loads from its rest.
        """
        samplings, steps = self.observer.samplings, dict[str, float]()
        for one in samplings:
            samplers = self.plans[int(one.link)].link.samplers
            id = samplers[0] if len(samplers) == 1 else ""
            steps[id] = steps.get(id, 0.0) + one.sampling_seconds
        watched = {
            "loading": sum(one.loading_seconds for one in samplings),
            "decoding": sum(one.seconds for one in self.observer.decodings),
        }
        longer = {kind: max(kinds.get(kind, 0.0), watched.get(kind, 0.0)) for kind in [*kinds, *watched]}
        found = {kind: {"": seconds} for kind, seconds in longer.items() if seconds}
        found |= {"samplingRun": steps, "otherNodes": {}}
        rest = sum(kinds.values()) - sum(sum(nodes.values()) for nodes in found.values())
        return found | {"otherNodes": {"": max(0.0, rest)}}


def job_state(phase: str, job: str = "", prompt: Any = None, why_not: str = "", lines: Sequence[str] = ()) -> Payload:
    """Return ``FasterState`` in web/js/payloads.d.ts."""
    state = {"phase": phase, "job": job, "prompt": prompt, "offer": None, "time": None, "levers": []}
    return state | {"why_not": told(why_not), "lines": [told(line) for line in lines]}
