"""What a workflow and ComfyUI have in themselves that would make it faster, as far as that is known for certain."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from ...measure.replay import Decoding
from ...optimizers.core.phrases import Phrase, phrase
from ...optimizers.in_comfyui.run.reporting import Payload
from ..comfyui.machine import loaded_patchers, memory_of, quantizations
from ..recipe import Value
from .node_types import node_type
from .sentences import told
from .workflow import ModelLink, Workflow, is_switch


class Bypassed(BaseModel):
    """A node of the page that is switched off: its execution id, type and title, and the files that it names."""

    id: str
    type: str
    title: str
    values: list[str]


@dataclass(frozen=True)
class Lever:
    """What can be changed: execution ids of nodes, inputs and their values; a node without an input is switched on."""

    said: Phrase
    sets: tuple[tuple[str, str, Value], ...] = ()

    @property
    def payload(self) -> Payload:
        """``Lever`` in web/js/payloads.d.ts."""
        sets = [{"node": node, "input": name, "value": value} for node, name, value in self.sets]
        return {"said": told(self.said), "sets": sets}


_TILES, _LARGEST_TILE = ("tile_size", "temporal_size"), 4096
"""The sizes of tiles in VAE Decode (Tiled), and the most that they can be."""

_STEPS = re.compile(r"(\d+) ?[-_]?steps?(?![a-z])", re.IGNORECASE)

_FEW_BITS = {"fp8": "float8", "int8": "int8", "mxfp8": "mxfp8", "nvfp4": "nvfp4"}
"""How names of files say that weights have 8 bits or fewer, and what ComfyUI calls that; plain fp8 it always loads."""

_BITS = re.compile(r"[-_.](fp32|fp16|bf16|e4m3fn|e5m2|scaled|tensorwise|" + "|".join(_FEW_BITS) + r")(?=[-_.])", re.I)


def levers(
    workflow: Workflow, bypassed: Iterable[Bypassed] = (), names: Mapping[str, str] | None = None
) -> list[Lever]:
    """Return what can be changed in the workflow, that which leaves out steps first.

    ``bypassed`` nodes are those of the page that are no part of it; ``names`` are those of widgets that a person sees
    outside of a subgraph, by ``node.input``.
    """
    return [*_fewer_steps(workflow, names or {}), *_turbo_loras(workflow, bypassed), *_smaller_files(workflow)]


def of_loaded_models() -> Iterator[Phrase]:
    """Yield what is known of the models that the last run has left loaded."""
    for patcher in loaded_patchers():
        applied = patcher.lowvram_patch_counter()
        if applied:
            yield phrase(
                "{model} does not fit on the device, so each step applies its LoRAs again in {count} layers. Save "
                "Checkpoint merges them once.",
                model=type(patcher.model).__name__,
                count=applied,
            )


def needless_tiles(workflow: Workflow, decoded: Iterable[tuple[ModelLink, Decoding]]) -> Iterator[Lever]:
    """Yield what is known of VAEs that a node had decode in tiles, where ComfyUI has the memory for the whole.

    VAEs that make tiles of their own are left alone. Of a video one tile as large as can be is the whole; pictures
    ComfyUI decodes three times, in tiles of three shapes.
    """
    for link, one in decoded:
        if one.method != "decode_tiled" or getattr(one.vae, "handles_tiling", False):
            continue
        needed, free = memory_of(one.vae, one.samples)
        if needed >= free:
            continue
        said = phrase(
            "The VAE computes the overlaps of its tiles twice. The whole picture needs about {needed:.2g} GB by "
            "ComfyUI's estimate, and {free:.2g} GB are free. The node VAE Decode does it at once.",
            needed=needed / 1e9,
            free=free / 1e9,
        )
        widgets = [(id, name) for id, _ in link.receivers for name in _TILES]
        if one.samples.ndim == 5 and all(isinstance(workflow.inputs(id).get(name), int) for id, name in widgets):
            sets = tuple((id, name, _LARGEST_TILE) for id, name in widgets)
            yield Lever(phrase("{said} It is tried in a single tile.", said=said), sets)
        else:
            yield Lever(said)


def _turbo_loras(workflow: Workflow, bypassed: Iterable[Bypassed]) -> Iterator[Lever]:
    taken = _steps(workflow) or 0
    for node in bypassed:
        kind = node_type(node.type)
        if "MODEL" not in kind.outputs or "MODEL" not in kind.inputs.values():
            continue
        there = [file for files in kind.choices.values() for file in files]
        for value in node.values:
            fewer = _STEPS.search(value)
            if value in there and fewer and int(fewer[1]) < taken:
                said = phrase(
                    "{node} is bypassed. By its name, its LoRA {file} is for {fewer} steps; this workflow takes "
                    "{steps}.",
                    node=node.title,
                    file=value,
                    fewer=int(fewer[1]),
                    steps=taken,
                )
                sets = _with_steps(workflow, int(fewer[1]))
                tried = phrase("{said} It is tried with {fewer} steps and cfg 1.", said=said, fewer=int(fewer[1]))
                yield Lever(tried, ((node.id, "", True), *sets)) if sets else Lever(said)


def _with_steps(workflow: Workflow, fewer: int) -> list[tuple[str, str, Value]]:
    """Return what makes a workflow take so many steps without guidance; none where several nodes have steps."""
    places = [id for id in workflow if isinstance(workflow.inputs(id).get("steps"), int)]
    if len(places) != 1 or _steps(workflow.edited({(places[0], "steps"): fewer})) != fewer:
        return []
    guided = [(id, "cfg", 1.0) for id in workflow if isinstance(workflow.inputs(id).get("cfg"), (int, float))]
    return [(places[0], "steps", fewer), *guided]


def _smaller_files(workflow: Workflow) -> Iterator[Lever]:
    """Yield the files beside those that are loaded which are, by their names, the same with fewer bits."""
    known = " ".join(quantizations())
    for id in workflow:
        choices = workflow.declared(id).choices if "load" in workflow.type(id).lower() else {}
        for name, file in workflow.inputs(id).items():
            beside = choices.get(name, ())
            if not isinstance(file, str) or file not in beside or _bits(file):
                continue
            fewer = [one for one in beside if (bits := _bits(one)) and bits in known and _alike(one) == _alike(file)]
            if fewer:
                said = phrase(
                    "By its name, {other} is the same model as {file} in fewer bits. It loads faster and takes less "
                    "memory; the picture changes.",
                    file=file,
                    other=fewer[0],
                )
                yield Lever(said, ((id, name, fewer[0]),))


def _bits(file: str) -> str:
    """Return what ComfyUI calls the few bits that a file's name tells of; empty where it tells of none."""
    told = (found.lower() for found in _BITS.findall(file))
    return next((_FEW_BITS[one] for one in told if one in _FEW_BITS), "")


def _alike(file: str) -> str:
    return _BITS.sub("", file).lower()


def _fewer_steps(workflow: Workflow, names: Mapping[str, str]) -> Iterator[Lever]:
    """Yield the switches by which fewer steps would be sampled: each is turned, and the workflow is looked at again."""
    now = _steps(workflow)
    deciding = [id for id in workflow if is_switch(workflow, id) or set(workflow.gives(id)) == {"BOOLEAN"}]
    values = [(id, name, value) for id in deciding for name, value in workflow.inputs(id).items()]
    for id, name, value in values:
        turned = _steps(workflow.edited({(id, name): not value})) if isinstance(value, bool) else None
        if now is not None and turned is not None and turned < now:
            said = phrase(
                "This workflow has a switch: with {node} {on} it takes {fewer} steps instead of {steps}.",
                node=names.get(f"{id}.{name}", workflow.title(id)),
                fewer=turned,
                steps=now,
                on=phrase("off") if value else phrase("on"),
            )
            yield Lever(said, ((id, name, not value),))


def _steps(workflow: Workflow) -> int | None:
    """Return the steps of all samplers; None where those of one are not known before a run."""
    steps = [link.steps for link in workflow.model_links]
    return sum(one for one in steps if one is not None) if steps and None not in steps else None
