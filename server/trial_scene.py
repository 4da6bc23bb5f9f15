"""What a trial measures with: a sampler of the workflow, as settings of Compare Models."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..workbench.comfyui.prompt import Prompt, link_of, node_before, users_of, way_back
from .wires import is_ours

_SAMPLER = ("positive", "negative", "latent_image", "steps", "cfg", "sampler_name", "scheduler")
"""Inputs that the samplers which Compare Models can stand in for have in common."""

_CUSTOM = ("sampler", "sigmas", "latent_image")
"""Of the samplers that are given sampler and noise levels by other nodes."""


@dataclass(frozen=True)
class Scene:
    """What is measured: our nodes' input ``name``, and settings of Compare Models, for both sides and for each."""

    name: str
    settings: Mapping[str, Any]
    baseline: Mapping[str, Any]
    optimized: Mapping[str, Any]


def scene_for(prompt: Prompt, name: str, wire: Any, receivers: Collection[str]) -> Scene | None:
    """Return how to measure a wire; None where Compare Models cannot stand in for what uses it.

    ``name`` is ``model``, ``vae`` or ``control_net``, ``wire`` an input's value, ``receivers`` the ids of its users.
    """
    if name == "model":
        for sampler, job in _jobs(prompt, (id for receiver in receivers for id in _samplers_of(prompt, receiver))):
            del job["model"]
            return Scene(name, job | _decoder(prompt, sampler), {"model_baseline": wire}, {"model_optimized": wire})
    if name == "vae":
        for _, job in _jobs(prompt, (id for receiver in receivers for id in _sources(prompt, receiver))):
            job["model_baseline"] = job.pop("model")
            return Scene(name, job, {"vae": wire}, {"vae_optimized": wire})
    if name == "control_net":
        users = {*receivers, *users_of(prompt, receivers)}
        for sampler, job in _jobs(prompt, prompt):
            baseline = {side: job.pop(side) for side in ("positive", "negative")}
            if any(_origin(wire) in users for wire in baseline.values()):
                job["model_baseline"] = _before_ours(prompt, job.pop("model"), "model")
                optimized = {f"{side}_optimized": wire for side, wire in baseline.items()}
                return Scene(name, job | _decoder(prompt, sampler), baseline, optimized)
    return None


def _jobs(prompt: Prompt, samplers: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for sampler in samplers:
        job = _job(prompt, sampler)
        if job is not None:
            yield sampler, job


def _samplers_of(prompt: Prompt, receiver: str) -> list[str]:
    """Return the node that is given a model, and the samplers behind it if it is a guider."""
    return [receiver, *(id for id in prompt if node_before(prompt, id, "guider") == receiver)]


def _sources(prompt: Prompt, id: str) -> list[str]:
    names = ("samples", "latent", "latent_image", "latents")
    return [*way_back(id, lambda id: node_before(prompt, id, *names))][1:]


def _decoder(prompt: Prompt, sampler: str) -> dict[str, Any]:
    """Return ``vae``, which decodes what a sampler gives, before nodes of ours; nothing where none does."""
    for id, node in prompt.items():
        if "vae" in node["inputs"] and node_before(prompt, id, "samples") == sampler:
            return {"vae": _before_ours(prompt, node["inputs"]["vae"], "vae")}
    return {}


def _before_ours(prompt: Prompt, wire: Any, name: str) -> Any:
    """Return a wire as it is before nodes of ours: what is judged is something else. None for a circle of ours."""
    seen: set[str] = set()
    while (origin := _origin(wire)) and is_ours(prompt[origin]) and name in prompt[origin]["inputs"]:
        if origin in seen:
            return None
        seen.add(origin)
        wire = prompt[origin]["inputs"][name]
    return wire


def _job(prompt: Prompt, sampler: str) -> dict[str, Any] | None:
    """Return ``model`` and the settings of Compare Models for a sampler; None if it has none of the known forms."""
    inputs = prompt[sampler]["inputs"]
    if all(name in inputs for name in (*_SAMPLER, "model")):
        seed = inputs.get("seed", inputs.get("noise_seed", 0))
        given = {name: inputs[name] for name in ("model", *_SAMPLER)}
        return given | {"seed": seed, "denoise": inputs.get("denoise", 1.0)}
    if not all(name in inputs for name in _CUSTOM):
        return None
    guidance = _guidance(prompt, sampler)
    levels = _levels(prompt, sampler)
    name = _value(prompt, sampler, "sampler", "sampler_name")
    if guidance is None or levels is None or name is None:
        return None
    seed = inputs.get("noise_seed", _value(prompt, sampler, "noise", "noise_seed"))
    latent = inputs["latent_image"]
    return {**guidance, **levels, "sampler_name": name, "seed": 0 if seed is None else seed, "latent_image": latent}


def _guidance(prompt: Prompt, sampler: str) -> dict[str, Any] | None:
    """Return model, conditionings and cfg, of a guider or of a sampler that has them itself.

    Of two positive conditionings the first is taken: a network's call is as long with each of them.
    """
    inputs = prompt[node_before(prompt, sampler, "guider") or sampler]["inputs"]
    positive = next((inputs[name] for name in ("positive", "conditioning", "cond1") if name in inputs), None)
    if positive is None or "model" not in inputs:
        return None
    negative, cfg = inputs.get("negative", positive), inputs.get("cfg", inputs.get("cfg_conds", 1.0))
    return {"model": inputs["model"], "positive": positive, "negative": negative, "cfg": cfg}


def _levels(prompt: Prompt, sampler: str) -> dict[str, Any] | None:
    """Return the schedule that a sampler's noise levels come from, also where they are split on the way."""
    for id in way_back(node_before(prompt, sampler, "sigmas"), lambda id: node_before(prompt, id, "sigmas")):
        inputs = prompt[id]["inputs"]
        if "scheduler" in inputs and "steps" in inputs:
            return {name: inputs[name] for name in ("scheduler", "steps", "denoise") if name in inputs}
    return None


def _origin(value: Any) -> str | None:
    link = link_of(value)
    return None if link is None else link[0]


def _value(prompt: Prompt, id: str, name: str, value: str) -> Any:
    node = node_before(prompt, id, name)
    return None if node is None else prompt[node]["inputs"].get(value)
