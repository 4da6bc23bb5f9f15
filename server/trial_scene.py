"""What a trial measures with: the workflow's own nodes, from a wire to the sampler or to what decodes.

In the prompt of a trial ComfyUI makes what goes into these nodes (latents, noise, sigmas, conditionings), as in any run
of the workflow. The node of nodes/trial_node.py runs them again and again, with one model or the other on the wire.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.errors import PacelineError
from ..workbench.comfyui.prompt import Link, link_of
from ..workbench.comfyui.seeds import SEEDS
from ..workbench.comfyui.segment import NOT_AGAIN, runs_again
from ..workbench.comfyui.workflow import Workflow
from ..workbench.comfyui.workflow_job import WIRE
from .wires import is_ours

_NAMES = {"MODEL": "model", "VAE": "vae", "CONTROL_NET": "control_net"}


class NotMeasurable(PacelineError):
    """What uses a wire cannot be measured, and why."""


@dataclass(frozen=True)
class Scene:
    """What the chain carries, the workflow without nodes of ours, and inputs of the trial's node."""

    name: str
    nodes: Workflow
    inputs: Mapping[str, Any]


def scene_for(workflow: Workflow, name: str, chain: list[str]) -> Scene:
    """Return how to measure the nodes of a ``chain``, which carries a ``name``: ``model``, ``vae`` or ``control_net``.

    `NotMeasurable` where nothing behind it samples, or decodes pictures.
    """
    plain = _without_ours(workflow, chain[-1])
    users = plain.users([WIRE])
    end = _decoded(plain, users) if name == "vae" else sampled(plain, users)
    inputs: dict[str, Any] = {} if name == "vae" else decoder(plain, end[0])
    needed = plain.needed(end[0])
    inside = [] if name == "vae" else [id for id in needed if id in users]
    if name == "vae":  # other uses of the VAE, such as encoding a picture, go without what is tried
        source = workflow.inputs(chain[0])[name]
        plain = plain.relinked(lambda value: source if (link := link_of(value)) and link[0] == WIRE else value)
    if name != "model":
        inputs["model"] = _model(plain, needed)
    seeded = [id for id in needed if draws(plain, id)]
    decided = {*seeded, *plain.users(seeded)}
    drawn = [id for id in needed if id in decided and id not in inside]
    for id in (*inside, *drawn):
        if not runs_again(plain.type(id)):
            raise NotMeasurable(f"{plain.title(id)} {NOT_AGAIN}.")
    parts = {
        "kind": name,
        "end": end,
        "wired": {id: plain[id] for id in inside},
        "drawn": {id: plain[id] for id in drawn},
        "seeded": seeded,
    }
    links = [link_of(value) for id in (*inside, *drawn) for value in plain.inputs(id).values()]
    for id, slot in filter(None, [*links, end]):
        if id not in (*inside, *drawn, WIRE):
            inputs[f"{id} {slot}"] = [id, slot]
    return Scene(name, plain, {**inputs, "scene": json.dumps(parts)})


def _without_ours(workflow: Workflow, last: str) -> Workflow:
    """Return a prompt in which nothing uses what nodes of ours change; what used the ``last`` of a chain uses ``WIRE``.

    What is judged is nothing but the chain.
    """

    def before(value: Any) -> Any:
        seen: set[str] = set()
        while (link := link_of(value)) and link[0] in workflow and link[0] not in seen and is_ours(workflow[link[0]]):
            if link == (last, 0):
                return [WIRE, 0]
            seen.add(link[0])
            types = workflow.gives(link[0])
            name = _NAMES.get(types[link[1]]) if link[1] < len(types) else None
            if name is None or name not in workflow.inputs(link[0]):
                return value
            value = workflow.inputs(link[0])[name]
        return value

    return Workflow({WIRE: {"class_type": "", "inputs": {}}, **workflow.relinked(before)})


def sampled(workflow: Workflow, users: Iterable[str]) -> Link:
    """Return the LATENT of the last sampler behind a wire; of several that are no others' latents, the first."""
    samplers = [
        id
        for id in workflow
        if id in users and "LATENT" in workflow.gives(id) and workflow.takes(id, "MODEL", "GUIDER")
    ]
    last = [id for id in samplers if not workflow.users([id]).keys() & samplers]
    if not last:
        raise NotMeasurable("No sampler follows that gives a latent, so there is nothing to measure.")
    return last[0], workflow.gives(last[0]).index("LATENT")


def _decoded(workflow: Workflow, users: Iterable[str]) -> Link:
    """Return the LATENT that is decoded with the VAE of a wire."""
    for id in workflow:
        vaes = (origin for origin, _ in workflow.takes(id, "VAE"))
        if id in users and "IMAGE" in workflow.gives(id) and WIRE in vaes:
            for latent in workflow.takes(id, "LATENT"):
                return latent
    raise NotMeasurable("This VAE decodes no pictures of the workflow, and only that is measured.")


def decoder(workflow: Workflow, sampler: str) -> dict[str, Any]:
    """Return ``vae`` and ``audio_vae``, which decode what a sampler gives to pictures and sound, where they do."""
    users = workflow.users([sampler])
    coders = [id for id in workflow if id in users and workflow.takes(id, "LATENT") and workflow.takes(id, "VAE")]
    found: dict[str, Any] = {}
    for id in coders:
        for given, name in (("IMAGE", "vae"), ("AUDIO", "audio_vae")):
            if given in workflow.gives(id):
                found.setdefault(name, list(workflow.takes(id, "VAE")[0]))
    return found


def _model(workflow: Workflow, needed: Iterable[str]) -> list[Any]:
    for id in needed:
        for model in workflow.takes(id, "MODEL"):
            return list(model)
    raise NotMeasurable("No model samples what is decoded, so there is no other picture to measure a difference by.")


def draws(workflow: Workflow, id: str) -> bool:
    """Return whether a node draws from a seed of its own."""
    seeded = any(name in workflow.inputs(id) for name in SEEDS)
    return seeded and not {"NOISE", "LATENT"}.isdisjoint(workflow.gives(id))
