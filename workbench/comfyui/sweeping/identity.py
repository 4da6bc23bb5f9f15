"""What must be the same for two results to stand in one table: the model, the prompts, the sampler, the machine."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch

from ....core.devices import device_name
from ....optimizers.hosts.comfyui.model import describe_model
from ..machine import host_version
from .cells import Bench


def job_identity(bench: Bench, source: str) -> dict[str, str]:
    """Return what identifies a sweep, by names that an error can show; for ``source`` see :func:`upstream`."""
    job = bench.job
    least, most = bench.settings.rounds(job.prompts)
    return {
        "model": describe_model(bench.model),
        "what is connected": source,
        "sampler": f"{job.sampler_name}, {job.scheduler}, {job.steps} steps, cfg {job.cfg:g}, denoise {job.denoise:g}",
        "seed": str(job.seed),
        "runs": f"seeds {least} to {most}, after {bench.settings.warmup_runs}",
        "device": device_name(bench.model.load_device),
        "torch": torch.__version__,
        "ComfyUI": host_version(),
        "difference in": "RMSE",  # earlier versions could judge by LPIPS
    }


def upstream(prompt: dict[str, Any] | None, node: str | None, inputs: tuple[str, ...]) -> str:
    """Return a digest of everything that leads to some inputs of a node, whatever the ids of the nodes are.

    ``prompt`` is a workflow in ComfyUI's API format, None outside of a workflow; ``inputs`` are names.
    """
    if not prompt or node not in prompt:
        return "not from a workflow"
    known: dict[str, str] = {}

    def digest(identifier: str) -> str:
        if identifier not in known:
            entry = prompt[identifier]
            content = {name: value(given) for name, given in entry.get("inputs", {}).items()}
            known[identifier] = _hash([entry.get("class_type"), content])
        return known[identifier]

    def value(given: object) -> object:
        # A link is [id of the node, number of its output].
        if isinstance(given, list) and len(given) == 2 and isinstance(given[0], str) and given[0] in prompt:
            return [digest(given[0]), given[1]]
        return given

    return _hash({name: value(prompt[node]["inputs"].get(name)) for name in inputs})[:16]


def _hash(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
