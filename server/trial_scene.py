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
from ..workbench.comfyui.prompt import Link, Prompt, link_of, needed_for, output_types, title_of, users_of
from ..workbench.comfyui.seeds import SEEDS
from ..workbench.comfyui.segment import NOT_AGAIN, runs_again
from ..workbench.comfyui.workflow_job import WIRE
from .wires import is_ours, typed_links

_NAMES = {"MODEL": "model", "VAE": "vae", "CONTROL_NET": "control_net"}


class NotMeasurable(PacelineError):
    """What uses a wire cannot be measured, and why."""


@dataclass(frozen=True)
class Scene:
    """What the chain carries, the workflow without nodes of ours, and inputs of the trial's node."""

    name: str
    nodes: Prompt
    inputs: Mapping[str, Any]


def scene_for(prompt: Prompt, name: str, chain: list[str]) -> Scene:
    """Return how to measure the nodes of a ``chain``, which carries a ``name``: ``model``, ``vae`` or ``control_net``.

    `NotMeasurable` where nothing behind it samples, or decodes pictures.
    """
    plain = _without_ours(prompt, chain[-1])
    users = users_of(plain, [WIRE])
    end = _decoded(plain, users) if name == "vae" else sampled(plain, users)
    inputs: dict[str, Any] = {} if name == "vae" else decoder(plain, end[0])
    needed = needed_for(plain, end[0])
    inside = [] if name == "vae" else [id for id in needed if id in users]
    if name == "vae":  # other uses of the VAE, such as encoding a picture, go without what is tried
        source = prompt[chain[0]]["inputs"][name]
        plain = {id: _relinked(node, source) for id, node in plain.items()}
    if name != "model":
        inputs["model"] = _model(plain, needed)
    seeded = [id for id in needed if draws(plain[id])]
    decided = {*seeded, *users_of(plain, seeded)}
    drawn = [id for id in needed if id in decided and id not in inside]
    for id in (*inside, *drawn):
        if not runs_again(plain[id]["class_type"]):
            raise NotMeasurable(f"{title_of(plain, id)} {NOT_AGAIN}.")
    parts = {
        "kind": name,
        "end": end,
        "wired": {id: plain[id] for id in inside},
        "drawn": {id: plain[id] for id in drawn},
        "seeded": seeded,
    }
    links = [link_of(value) for id in (*inside, *drawn) for value in plain[id]["inputs"].values()]
    for id, slot in filter(None, [*links, end]):
        if id not in (*inside, *drawn, WIRE):
            inputs[f"{id} {slot}"] = [id, slot]
    return Scene(name, plain, {**inputs, "scene": json.dumps(parts)})


def _without_ours(prompt: Prompt, last: str) -> dict[str, Mapping[str, Any]]:
    """Return a prompt in which nothing uses what nodes of ours change; what used the ``last`` of a chain uses ``WIRE``.

    What is judged is nothing but the chain.
    """

    def before(value: Any) -> Any:
        seen: set[str] = set()
        while (link := link_of(value)) and link[0] in prompt and link[0] not in seen and is_ours(prompt[link[0]]):
            if link == (last, 0):
                return [WIRE, 0]
            seen.add(link[0])
            types = output_types(prompt[link[0]]["class_type"])
            name = _NAMES.get(types[link[1]] if link[1] < len(types) else "")
            if name not in prompt[link[0]]["inputs"]:
                return value
            value = prompt[link[0]]["inputs"][name]
        return value

    plain: dict[str, Mapping[str, Any]] = {WIRE: {"class_type": "", "inputs": {}}}
    for id, node in prompt.items():
        plain[id] = {**node, "inputs": {name: before(value) for name, value in node["inputs"].items()}}
    return plain


def sampled(prompt: Prompt, users: Iterable[str]) -> Link:
    """Return the LATENT of the last sampler behind a wire; of several that are no others' latents, the first."""
    samplers = [
        id for id in prompt if id in users and _gives(prompt[id], "LATENT") and _takes(prompt, id, "MODEL", "GUIDER")
    ]
    last = [id for id in samplers if not users_of(prompt, [id]).keys() & samplers]
    if not last:
        raise NotMeasurable("No sampler follows that gives a latent, so there is nothing to measure.")
    return last[0], output_types(prompt[last[0]]["class_type"]).index("LATENT")


def _decoded(prompt: Prompt, users: Iterable[str]) -> Link:
    """Return the LATENT that is decoded with the VAE of a wire."""
    for id in prompt:
        if id in users and _gives(prompt[id], "IMAGE") and WIRE in (origin for origin, _ in _takes(prompt, id, "VAE")):
            for latent in _takes(prompt, id, "LATENT"):
                return latent
    raise NotMeasurable("This VAE decodes no pictures of the workflow, and only that is measured.")


def decoder(prompt: Prompt, sampler: str) -> dict[str, Any]:
    """Return ``vae`` and ``audio_vae``, which decode what a sampler gives to pictures and sound, where they do."""
    users = users_of(prompt, [sampler])
    coders = [id for id in prompt if id in users and _takes(prompt, id, "LATENT") and _takes(prompt, id, "VAE")]
    found: dict[str, Any] = {}
    for id in coders:
        for given, name in (("IMAGE", "vae"), ("AUDIO", "audio_vae")):
            if _gives(prompt[id], given):
                found.setdefault(name, list(_takes(prompt, id, "VAE")[0]))
    return found


def _model(prompt: Prompt, needed: Iterable[str]) -> list[Any]:
    for id in needed:
        for model in _takes(prompt, id, "MODEL"):
            return list(model)
    raise NotMeasurable("No model samples what is decoded, so there is no other picture to measure a difference by.")


def _takes(prompt: Prompt, id: str, *types: str) -> list[Link]:
    return [origin for type, _, origin in typed_links(prompt, id) if type in types]


def _gives(node: Mapping[str, Any], type: str) -> bool:
    return type in output_types(node["class_type"])


def draws(node: Mapping[str, Any]) -> bool:
    """Return whether a node draws from a seed of its own."""
    seeded = any(name in node["inputs"] for name in SEEDS)
    return seeded and (_gives(node, "NOISE") or _gives(node, "LATENT"))


def _relinked(node: Mapping[str, Any], source: Any) -> dict[str, Any]:
    """Return a node with its links to ``WIRE`` moved to another."""

    def relinked(value: Any) -> Any:
        link = link_of(value)
        return source if link is not None and link[0] == WIRE else value

    return {**node, "inputs": {name: relinked(value) for name, value in node["inputs"].items()}}
