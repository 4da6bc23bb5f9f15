"""The prompts that ComfyUI runs to find out what makes a workflow faster, and the workflow that comes of it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from ...measure.measure import SIDES
from ...optimizers.core.settings import later_seed
from ..recipe import Step
from .node_types import Link, Prompt, node_type
from .workflow import ModelLink, Workflow

NO_RUN = "paceline_trial"
"""Ids of nodes begin with it in prompts that are no runs of a workflow, for the page; see run_prompt.js."""

FEWEST, PICTURES = 2, 3
"""Seeds that a proof draws, plain and faster: the fewest, and as many where their seconds are not clear by then."""

SEEDS = ("seed", "noise_seed")
"""Inputs that hold a seed."""

_WATCH = {"model": "_PacelineObserved", "vae": "_PacelineObservedVAE"}

Chosen = Sequence[tuple[ModelLink, Sequence[Step]]]
"""The nodes to insert on each link."""

_DIGITS = 16
"""Ids of more digits are no numbers that ComfyUI has counted."""


def observed(workflow: Workflow, links: Sequence[ModelLink], job: str) -> Prompt:
    """Return the workflow as it is, with an observer on each link, directly before its samplers and decoders."""
    for number, link in enumerate(links):
        watch = _node(_WATCH[link.input], job=job, link=str(number))
        workflow = _on_link(workflow, link, {f"paceline_observed {number}": watch})
    return workflow


def as_it_is(watched: Workflow) -> Workflow:
    """Return the workflow that a prompt of ``observed`` was made of, and any other as it is."""
    origins = {id: [*next(iter(watched.links[id].values()))] for id in watched if watched.type(id) in _WATCH.values()}
    links = [(id, name, link) for id in watched for name, link in watched.links[id].items() if link[0] in origins]
    edited = watched.edited({(id, name): origins[link[0]] for id, name, link in links})
    return Workflow({id: edited[id] for id in watched if id not in origins})


def probing(workflow: Workflow, links: Sequence[ModelLink], job: str) -> Prompt:
    """Return a prompt of a probe.

    It takes all that the samplers took, so that ComfyUI keeps what it has made: models, encoded texts, latents; and
    the VAEs.
    """
    samplers = [id for link in links if link.input == "model" for id, _ in link.receivers]
    taken = [*(origin for id in samplers for origin in workflow.links[id].values()), *(link.origin for link in links)]
    kept = {f"kept {number}": [*origin] for number, origin in enumerate(taken)}
    return _needed({**workflow, NO_RUN: _node("_PacelineTrial", job=job, **kept)})


def inserted(workflow: Workflow, chosen: Chosen) -> Prompt:
    """Return the workflow with nodes on its links, as a person would save it."""
    for link, steps in chosen:
        firsts = [id.split(":")[0] for id in workflow]
        free = max((int(id) for id in firsts if id.isdecimal() and len(id) < _DIGITS), default=0) + 1
        made = {str(free + number): _made(step) for number, step in enumerate(steps)}
        for node in made.values():
            node["_meta"] = {"title": node_type(node["class_type"]).title}
        workflow = _on_link(workflow, link, made)
    return workflow


def proving(workflow: Workflow, chosen: Chosen, job: str, seed: int) -> Prompt | None:
    """Return a prompt that draws a seed plain and faster, later ones the other way; None where nothing gives a latent.

    ``seed`` counts from 0, which is the workflow's own.
    """
    ends = _sampled(workflow, [link for link, _ in chosen if link.input == "model"])
    if not ends:
        return None
    nodes: dict[str, Any] = {}
    drawn: dict[str, Any] = {}
    last: list[Any] | None = None
    for side in SIDES if seed % 2 == 0 else reversed(SIDES):
        latents = _draw(nodes, workflow, chosen, ends, side, seed, job, last)
        drawn |= {f"{side} {seed} {number}": latent for number, latent in enumerate(latents)}
        last = latents[-1]
    behind = workflow.users([ends[0][0]])
    vaes = [[*link.origin] for link in workflow.vae_links if any(id in behind for id, _ in link.receivers)]
    shown = {"vae": vaes[0]} if vaes else {}
    return _needed({**workflow, **nodes, NO_RUN: _node("_PacelineTrial", job=job, proof=True, **drawn, **shown)})


def _draw(
    nodes: dict[str, Any], workflow: Workflow, chosen: Chosen, ends: Sequence[Link], side: str, seed: int, job: str,
    after: list[Any] | None,
) -> list[list[Any]]:  # fmt: skip
    """Add the nodes that draw one picture ``after`` another one; return where its latents come from."""
    name, changed = f"{NO_RUN} {side} {seed}", workflow
    for number, (link, steps) in enumerate(chosen):
        made = {
            f"{name} step {number}.{at}": _made(step) for at, step in enumerate(steps if side == "optimized" else ())
        }
        # Named anew each time: else ComfyUI would hand on what an earlier proof has drawn, which nobody has watched.
        observer = _node("_PacelineObserved", job=job, link=f"{side} {seed} {number} {secrets.token_hex(4)}")
        observer["inputs"] |= {} if after is None else {"after": after}
        watched = {f"{name} observed {number}": observer} if link.input == "model" else {}
        changed = _on_link(changed, link, made | watched)
    needed = {id for end in ends for id in changed.needed(end[0])}
    seeded = [id for id in needed if seed and _draws(changed, id)]
    places = [(id, put) for id in seeded for put in SEEDS if put in changed.inputs(id)]
    values = {(id, put): changed.inputs(id)[put] for id, put in places}
    # The value of one that comes over a link is not known here.
    seeds = {at: later_seed(old, seed) if isinstance(old, int) else 20_010 + seed for at, old in values.items()}
    changed = changed.edited(seeds)
    ours = {id for id in changed if id not in workflow}
    by_model, by_seed = ours | {*changed.users(ours)}, {*seeded, *changed.users(seeded)}
    names = {id: f"{name} {id}" for id in by_model & needed} | {id: id for id in ours}
    names |= {id: f"{NO_RUN} seed {seed} {id}" for id in (by_seed - by_model) & needed}
    nodes |= changed.copied(names)
    return [[names[id], slot] for id, slot in ends]


def _on_link(workflow: Workflow, link: ModelLink, made: Mapping[str, dict[str, Any]]) -> Workflow:
    """Return the workflow with new nodes on a link, in order."""
    source: list[Any] = [*link.origin]
    for id, node in made.items():
        node["inputs"][link.input] = source
        source = [id, 0]
    return Workflow({**workflow.edited(dict.fromkeys(link.receivers, source)), **made})


def _draws(workflow: Workflow, id: str) -> bool:
    """Return whether a node draws from a seed of its own."""
    seeded = any(name in workflow.inputs(id) for name in SEEDS)
    return seeded and not {"NOISE", "LATENT"}.isdisjoint(workflow.gives(id))


def _made(step: Step) -> dict[str, Any]:
    return _node(step.node, **{**node_type(step.node).defaults, **step.inputs})


def _node(type: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": type, "inputs": inputs}


def _needed(nodes: Prompt) -> Prompt:
    """Return the measuring node and what it needs."""
    known = Workflow(nodes)
    return {id: known[id] for id in known.needed(NO_RUN)}


def _sampled(workflow: Workflow, links: Sequence[ModelLink]) -> list[Link]:
    """Return the LATENTs of the last samplers on some links: those whose latents no further sampler on them takes."""
    given = [id for link in links for id, _ in link.receivers]
    behind = {*given, *workflow.users(given)}
    samplers = [
        id
        for id in workflow
        if id in behind and "LATENT" in workflow.gives(id) and workflow.takes(id, "MODEL", "GUIDER")
    ]
    last = [id for id in samplers if not workflow.users([id]).keys() & samplers]
    return [(id, workflow.gives(id).index("LATENT")) for id in last]
