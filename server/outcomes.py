"""*Slower than last week?*: what ordinary runs took, kept on this machine, and compared with each new one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from pydantic import Field, TypeAdapter, ValidationError

from ..core.devices import device_name, processor_name
from ..core.files import fingerprint_of, write_atomically
from ..core.phrases import Phrase, phrase
from ..faster.request import Seconds, Sent
from ..faster.sentences import STAGES, by_stage, told
from ..faster.workflow import Workflow, find_model_links
from ..optimizers.hosts.comfyui.runtime.paths import user_folder
from ..optimizers.hosts.comfyui.runtime.reporting import Payload
from ..workbench.comfyui.machine import host_device, host_version, loaded_families
from ..workbench.measurement.slower import KeptRun, Slower, slower
from .run_routes import run_of

OUTCOMES = "/paceline/outcomes"

MOST_BYTES = 10**6
"""The oldest runs leave first."""

_FREE = re.compile(r"seed|^text|prompt|filename|control_after")
"""Inputs that change from run to run, and not what it takes."""

_NOT_ORDINARY = re.compile(r"_Paceline|Paceline(Compare|Benchmark|Profile)")
"""Nodes of prompts that measure."""

_OUTCOME = TypeAdapter(KeptRun)


class Ended(Sent):
    """What the page tells of a run: seconds by kind of node, the nodes that did something, and whether one loaded."""

    prompt_id: str = Field(max_length=100)
    seconds: Seconds
    nodes: list[str] = Field(max_length=3000)
    loaded: bool


class Outcomes:
    """The runs in one file, a line of JSON each, the oldest first."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._last = ""

    @property
    def path(self) -> Path:
        return user_folder("outcomes.jsonl")

    def ended(self, sent: Any, server: Any) -> Payload:
        """Keep what a run took; return whether it is slower than it was, ``{"slower": Told or None}``.

        `InvalidSetting` if it cannot be read. A prompt that is not known any more, or measures, is not kept.
        """
        ended = Ended.read(sent)
        run = run_of(server, ended.prompt_id)
        if run is None or any(_NOT_ORDINARY.match(str(node.get("class_type"))) for node in run.prompt.values()):
            return {"slower": None}
        outcome = outcome_of(ended, Workflow.read(dict(run.prompt)))
        with self._lock:
            known = self.read()
            if self._last != ended.prompt_id:  # two tabs tell of it
                self._last = ended.prompt_id
                known.append(outcome)
                self._write(known)
        found = slower(known, outcome)
        return {"slower": None if found is None else told(sentence(found))}

    def read(self) -> list[KeptRun]:
        """Return what is kept; lines that are none of ours are left out."""
        try:
            lines = self.path.read_bytes()[-2 * MOST_BYTES :].splitlines()
        except OSError:
            return []
        return [*_readable(lines)]

    def payload(self) -> Payload:
        """Return ``KeptRuns`` in web/js/payloads.d.ts."""
        return {"runs": [asdict(one) for one in self.read()]}

    def clear(self) -> Payload:
        """Forget all runs, and return what is kept then: nothing; `NotWritten` if the file cannot be changed."""
        with self._lock:
            self._write([])
        return self.payload()

    def _write(self, outcomes: list[KeptRun]) -> None:
        lines = [json.dumps(asdict(one)).encode() + b"\n" for one in outcomes]
        while sum(map(len, lines)) > MOST_BYTES:
            del lines[: max(1, len(lines) // 10)]
        write_atomically(self.path, lambda path: path.write_bytes(b"".join(lines)))


def outcome_of(ended: Ended, workflow: Workflow) -> KeptRun:
    """Return what is kept of a run: no text, no name of a file, no seed."""
    nodes = {id: [workflow.type(id), _lasting(workflow.inputs(id))] for id in workflow}
    seconds = {stage: round(each, 3) for stage, each in by_stage(ended.seconds).items()}
    return KeptRun(
        fingerprint_of([nodes, sorted(set(ended.nodes))])[:16],
        datetime.now(timezone.utc).isoformat(timespec="seconds"),
        seconds,
        ended.loaded,
        {"ComfyUI": host_version(), "torch": torch.__version__, "device": device_here()},
        _about(workflow),
    )


def sentence(found: Slower) -> Phrase:
    """Return what became slower, since when, and what is known to have changed."""
    changed = ", ".join(f"{name} {before} → {after}" for name, (before, after) in found.changed.items())
    same = phrase("Versions and device are the same as before.")
    return phrase(
        "Slower since {when}: {stage} {now:.3g} of {total:.3g} s, before {was:.3g} of {before:.3g} s. {changed}",
        when=found.since.replace("T", " ")[:16] + " UTC",
        stage=STAGES[found.stage],
        now=found.now,
        total=found.total_now,
        was=found.was,
        before=found.total_was,
        changed=phrase("Changed since: {what}.", what=changed) if changed else same,
    )


def _lasting(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in inputs.items() if isinstance(value, list) or not _FREE.search(name)}


def _about(workflow: Workflow) -> dict[str, str]:
    links = find_model_links(workflow)
    sizes = {name: value for id in workflow for name, value in workflow.inputs(id).items() if isinstance(value, int)}
    about = {
        "family": ", ".join(loaded_families()),
        "solver": ", ".join(filter(None, (link.solver for link in links))),
        "steps": ", ".join(str(link.steps) for link in links if link.steps is not None),
        "size": " x ".join(str(sizes[name]) for name in ("width", "height", "length") if name in sizes),
    }
    return {name: value[:200] for name, value in about.items() if value}


def device_here() -> str:
    """Return the name of the device that ComfyUI computes on."""
    device = host_device()
    return processor_name() if device.type == "cpu" else device_name(device)


def _readable(lines: list[bytes]) -> Iterator[KeptRun]:
    for line in lines:
        try:
            yield _OUTCOME.validate_json(line)
        except ValidationError:
            continue
