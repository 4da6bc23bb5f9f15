"""ComfyUI's own templates, as its package of them has them, made small enough for a processor.

Nothing of them is in this repository: they are read from ``comfyui-workflow-templates-json``, which ComfyUI asks for.
"""

from __future__ import annotations

import importlib.util
import json
import re
import wave
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from .client import Prompt
from .random_files.table import MARK, NETWORKS, RATE
from .transformers import lacking
from .workflow import Json

_PACKAGE = "comfyui_workflow_templates_json"

RANDOM_FILES = Path(__file__).with_name("random_files_pack")
"""The pack of nodes with which ComfyUI loads what `write_files` writes."""

SMALL: Mapping[str, Any] = {
    "width": 128,
    "height": 128,
    "length": 9,
    "megapixels": 0.02,
    "longer_edge": 128,
    "max_length": 8,
    "frame_idx": 0,
}
"""What an input of this name becomes."""

INPUTS: Mapping[str, tuple[str, str]] = {
    "LoadImage": ("image", "template.png"),
    "LoadAudio": ("audio", "template.wav"),
    "LoadVideo": ("file", "template.mp4"),
}
"""By the type of a node that reads a file: its input's name, and our file."""


@dataclass(frozen=True)
class Template:
    """One of ComfyUI's templates: its name, how often it was opened, which models it is of, and what it makes."""

    name: str
    usage: int
    models: tuple[str, ...]
    tags: tuple[str, ...]
    kind: str

    def workflow(self) -> Json:
        """Return the workflow as the frontend saves it."""
        return json.loads((_folder() / f"{self.name}.json").read_text(encoding="utf-8"))


def installed() -> bool:
    """Return whether ComfyUI's templates are there: its requirements ask for them."""
    return importlib.util.find_spec(_PACKAGE) is not None


def _folder() -> Path:
    return Path(str(importlib.util.find_spec(_PACKAGE).submodule_search_locations[0])) / "templates"


@cache
def open_weight() -> tuple[Template, ...]:
    """Return the templates of models that people can run themselves, the most used first."""
    index = json.loads((_folder() / "index.json").read_text(encoding="utf-8"))
    entries = {entry["name"]: (group["type"], entry) for group in index for entry in group["templates"]}
    found = [
        Template(name, entry.get("usage", 0), tuple(entry.get("models", ())), tuple(entry.get("tags", ())), kind)
        for name, (kind, entry) in entries.items()
        if entry.get("openSource", True)
    ]
    return tuple(sorted(found, key=lambda template: (-template.usage, template.name)))


def most_used(count: int) -> tuple[Template, ...]:
    """Return the most used of them that draw pictures or videos with a diffusion model."""
    return tuple(islice(drawing(), count))


def drawing() -> Iterator[Template]:
    """Yield all of them, the most used first."""
    return filter(_draws, open_weight())


def _draws(template: Template) -> bool:
    if template.kind not in ("image", "video") or {"3D", "Audio"} & {*template.tags}:
        return False
    slots = [slot for node in nodes_of(template.workflow()) for slot in node.get("inputs") or []]
    return {"MODEL", "LATENT"} <= {str(slot["type"]) for slot in slots}


def nodes_of(workflow: Json) -> Iterator[Json]:
    """Yield the nodes of a workflow, those in its subgraphs included."""
    yield from workflow["nodes"]
    for graph in workflow.get("definitions", {}).get("subgraphs", []):
        yield from graph["nodes"]


def files_of(workflow: Json) -> set[tuple[str, str]]:
    """Return folder and name of each model file that a workflow says it needs."""
    named = (node.get("properties", {}).get("models") or [] for node in nodes_of(workflow))
    return {(model["directory"], model["name"]) for models in named for model in models}


def small(prompt: Prompt, object_info: Mapping[str, Any]) -> Prompt:
    """Return a prompt that samples little, of files that `write_inputs` writes."""
    made = {}
    for id, node in prompt.items():
        groups = object_info[node["class_type"]]["input"].values()
        specs = {name: spec for group in groups for name, spec in group.items()}
        inputs = dict(node["inputs"])
        for name in inputs.keys() & SMALL.keys() & specs.keys():
            inputs[name] = max(SMALL[name], specs[name][1].get("min", 0))
        for name in inputs.keys() & specs.keys():  # values that only a newer ComfyUI takes
            if specs[name][0] == "INT" and isinstance(inputs[name], str):
                inputs[name] = specs[name][1]["default"]
        if node["class_type"] in INPUTS:
            inputs |= dict([INPUTS[node["class_type"]]])
        made[id] = {**node, "inputs": inputs}
    return made


def write_inputs(folder: Path) -> None:
    """Write a picture, whose left half is a mask, a sound and a video into ComfyUI's folder of inputs."""
    import av
    import numpy as np
    from PIL import Image

    frames = np.random.default_rng(0).integers(0, 256, (9, 128, 128, 3), np.uint8)
    picture = Image.fromarray(frames[0])
    picture.putalpha(Image.fromarray(np.repeat([[0] * 64 + [255] * 64], 128, axis=0).astype(np.uint8)))
    picture.save(folder / INPUTS["LoadImage"][1])
    with wave.open(str(folder / INPUTS["LoadAudio"][1]), "wb") as sound:
        sound.setnchannels(2)
        sound.setsampwidth(2)
        sound.setframerate(RATE)
        sound.writeframes(frames.tobytes()[: 4 * RATE])
    with av.open(str(folder / INPUTS["LoadVideo"][1]), "w") as video:
        stream = video.add_stream("mpeg4", rate=24)
        stream.width, stream.height, stream.pix_fmt = 128, 128, "yuv420p"
        for frame in frames:
            video.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        video.mux(stream.encode())


def diffusion_models(template: Template) -> list[str]:
    """Return the files of a template's diffusion models."""
    files = sorted(files_of(template.workflow()))
    return [name for folder, name in files if folder in ("diffusion_models", "checkpoints")]


def without_network(template: Template) -> list[str]:
    """Return those of which this ComfyUI has no small network, and patches of models, of which there are none."""
    patches = sorted(name for folder, name in files_of(template.workflow()) if folder == "model_patches")
    known = [pattern for pattern, (name, _) in NETWORKS if name not in lacking()]
    models = diffusion_models(template)
    return [name for name in models if not any(re.search(pattern, name, re.I) for pattern in known)] + patches


def write_file(path: Path) -> Path:
    """Write a file that holds nothing but its name, which the pack in ``RANDOM_FILES`` takes for a small network."""
    import torch
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({MARK: torch.zeros(1)}, path, {MARK: path.name})
    return path
