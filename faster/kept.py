"""What ordinary runs took, kept in one file on this machine: no text, no name of a file, no seed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from threading import Lock
from typing import Annotated

import torch
from pydantic import Field, TypeAdapter, ValidationError

from ..core.devices import device_name, processor_name
from ..core.files import fingerprint_of, write_atomically
from ..optimizers.hosts.comfyui.runtime.paths import user_folder
from ..workbench.comfyui.machine import host_device, host_version, loaded_families
from ..workbench.measurement.slower import KeptRun
from ..workbench.recipe import PREFIX
from .node_types import title_of
from .request import Seconds, Sent
from .same_work import lasting_nodes, made_of, sampled_by, techniques_before, workflow_key
from .sentences import by_stage
from .workflow import Workflow, find_model_links

MOST_BYTES = 10**6
"""The oldest runs leave first."""

_KEPT_RUN = TypeAdapter(KeptRun)

StepSeconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Ended(Sent):
    """What the page tells of a run.

    Attributes:
        seconds: by kind of node; ``parts`` the same by kind and node.
        nodes: those that did something.
        loaded: whether one read a model from disk.
        again: why weights were loaded again; empty where they were not, or that is not known.
        steps: by sampler, seconds of a step in each half of its run.
    """

    prompt_id: str = Field(max_length=100)
    seconds: Seconds
    nodes: list[str] = Field(max_length=3000)
    loaded: bool
    parts: dict[str, Annotated[dict[str, float], Field(max_length=3000)]] = Field(default_factory=dict, max_length=20)
    again: str = Field(default="", max_length=500)
    steps: dict[str, Annotated[list[StepSeconds], Field(max_length=2)]] = Field(default_factory=dict, max_length=100)


class KeptRuns:
    """The runs in one file, a line of JSON each, the oldest first."""

    _lock = Lock()

    def __init__(self) -> None:
        self._last = ""

    @property
    def path(self) -> Path:
        return user_folder("outcomes.jsonl")

    def read(self) -> list[KeptRun]:
        """Return what is kept; lines that are none of ours are left out."""
        try:
            lines = self.path.read_bytes()[-2 * MOST_BYTES :].splitlines()
        except OSError:
            return []
        return [*_readable(lines)]

    def add(self, run: KeptRun, prompt_id: str) -> list[KeptRun]:
        """Keep a run, once if two tabs tell of it; return all that are kept."""
        with self._lock:
            known = self.read()
            if self._last != prompt_id:
                self._last = prompt_id
                known.append(run)
                self._write(known)
        return known

    def give_up(self, workflow: Workflow, seconds: Mapping[str, float]) -> None:
        """Note with the last run of a workflow what could not be tried, as ``KeptRun.given_up``."""
        key = workflow_key(workflow)
        with self._lock:
            known = self.read()
            last = max((number for number, run in enumerate(known) if run.workflow == key), default=None)
            if seconds and last is not None:
                known[last] = replace(known[last], given_up={**seconds})
                self._write(known)

    def clear(self) -> None:
        """Forget all runs; `NotWritten` if the file cannot be changed."""
        with self._lock:
            self._write([])

    def _write(self, runs: list[KeptRun]) -> None:
        lines = [json.dumps(asdict(one)).encode() + b"\n" for one in runs]
        while sum(map(len, lines)) > MOST_BYTES:
            del lines[: max(1, len(lines) // 10)]
        write_atomically(self.path, lambda path: path.write_bytes(b"".join(lines)))


def kept_run(ended: Ended, workflow: Workflow) -> KeptRun:
    """Return what is kept of a run."""
    seconds = {stage: round(each, 3) for stage, each in by_stage(ended.seconds).items()}
    parts = {kind: {id: round(each, 3) for id, each in nodes.items()} for kind, nodes in ended.parts.items()}
    texts = {id: made_of(workflow, id) for id in parts.get("textEncoding", ()) if id in workflow}
    plain = [id for id in ended.steps if id in workflow and not techniques_before(workflow, id)]
    return KeptRun(
        fingerprint_of([lasting_nodes(workflow), sorted({*ended.nodes} & {*workflow})])[:16],
        datetime.now(timezone.utc).isoformat(timespec="seconds"),
        seconds,
        ended.loaded,
        facts_here(),
        about(workflow),
        workflow_key(workflow),
        parts,
        ended.again,
        texts,
        plain_steps={sampled_by(workflow, id): [round(each, 5) for each in ended.steps[id]] for id in plain},
    )


def facts_here() -> dict[str, str]:
    """Return versions and device, by their names."""
    return {"ComfyUI": host_version(), "torch": torch.__version__, "device": device_here()}


def about(workflow: Workflow) -> dict[str, str]:
    """Return what a workflow draws, when its models are loaded, and with which of our nodes."""
    links = find_model_links(workflow)
    sizes = {name: value for id in workflow for name, value in workflow.inputs(id).items() if isinstance(value, int)}
    ours = {title_of(type) for type in map(workflow.type, workflow) if type.startswith(PREFIX)}
    found = {
        "family": ", ".join(loaded_families()),
        "solver": ", ".join(filter(None, (link.solver for link in links))),
        "steps": ", ".join(str(link.steps) for link in links if link.steps is not None),
        "size": " x ".join(str(sizes[name]) for name in ("width", "height", "length") if name in sizes),
        "nodes": ", ".join(sorted(ours)),
    }
    return {name: value[:200] for name, value in found.items() if value}


def device_here() -> str:
    """Return the name of the device that ComfyUI computes on."""
    device = host_device()
    return processor_name() if device.type == "cpu" else device_name(device)


def _readable(lines: list[bytes]) -> Iterator[KeptRun]:
    for line in lines:
        try:
            yield _KEPT_RUN.validate_json(line)
        except ValidationError:
            continue
