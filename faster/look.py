"""What is known of a workflow before any run.

Where the time of its pictures goes and what can be done about each part; and what it and ComfyUI have in themselves
that would make it faster, as far as that is known for certain.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from ..core.phrases import Phrase, phrase
from ..optimizers.hosts.comfyui.runtime.reporting import Payload
from ..workbench.comfyui.decoding import Decoding
from ..workbench.comfyui.machine import loaded_patchers, quantizations
from .kept import KeptRun
from .node_types import node_type
from .plan import Plan
from .request import Bypassed
from .same_work import workflow_key
from .sentences import told
from .workflow import Workflow, is_switch

SEEN = 0.02
"""Parts with less than this share of the time are shown together."""

_NOTHING = phrase("No node of this pack speeds this part up.")


def picture_time(workflow: Workflow, kept: Sequence[KeptRun], plans: Sequence[Plan]) -> Payload | None:
    """Return ``PictureTime`` in web/js/payloads.d.ts, of a workflow's last kept run; None without one."""
    key = workflow_key(workflow)
    own = [number for number, run in enumerate(kept) if run.workflow == key and run.parts]
    if not own:
        return None
    run, before = kept[own[-1]], kept[own[-1] - 1] if own[-1] else None
    idle = {name for number in own for name, seconds in kept[number].given_up.items() if not seconds}
    parts = sorted(_parts(workflow, run, before, plans, idle), key=lambda part: -float(part["seconds"]))
    runs = [sum(kept[number].seconds.values()) for number in own]
    sentence = phrase("The last picture took {seconds:.3g} s", seconds=runs[-1])
    if len(runs) > 1:
        sentence = phrase(
            "The last picture took {seconds:.3g} s ({count} pictures: {least:.3g} to {most:.3g} s)",
            seconds=runs[-1],
            count=len(runs),
            least=min(runs),
            most=max(runs),
        )
    return {"sentence": told(sentence), "parts": parts}


def _parts(
    workflow: Workflow, run: KeptRun, before: KeptRun | None, plans: Sequence[Plan], idle: Collection[str]
) -> Iterator[Payload]:
    """Yield some of the time each, and what can be done about it; ``idle`` nodes do nothing there."""
    least, small = SEEN * sum(sum(nodes.values()) for nodes in run.parts.values()), 0.0

    def part(kind: str, name: str, seconds: float, remedy: Phrase) -> Payload:
        return {"kind": kind, "name": name, "seconds": seconds, "remedy": told(remedy)}

    for kind, nodes in run.parts.items():
        of_nodes = kind in ("samplingRun", "otherNodes", "controlnet")
        for id, seconds in nodes.items() if of_nodes else [("", sum(nodes.values()))]:
            name = workflow.title(id) if id in workflow else ""
            if seconds < least:
                small += seconds
            elif not of_nodes:
                yield part(kind, "", seconds, _remedy(kind, run, before, plans))
            elif kind == "samplingRun":
                yield part(kind, name, seconds, _of_steps(id, plans, idle))
            elif not id:
                unknown = phrase("Not told apart: encoding of texts, loading, saving and others.")
                yield part(kind, name, seconds, unknown)
            else:
                yield part(kind, name, seconds, _NOTHING)
    if small:
        yield part("otherNodes", "", small, phrase("Nothing: each takes less than a fiftieth."))


def _remedy(kind: str, run: KeptRun, before: KeptRun | None, plans: Sequence[Plan]) -> Phrase:
    if kind == "loading":
        if run.again:
            return phrase("{why}", why=run.again)
        if run.loaded:
            return phrase("Nothing: files are read once, and the next picture needs none of it.")
        return phrase("Nothing known: ComfyUI moves to the device what it had put away.")
    if kind == "compiling":
        return phrase("Nothing: once for each model and size.")
    if kind == "textEncoding":
        return _of_text(run, before)
    if kind == "decoding":
        behind = [plan for plan in plans if plan.link.input == "vae"]
        return _can_be_tried(dict.fromkeys(title for plan in behind for title in plan.titles))
    if kind == "saving":
        return phrase("Nothing: the file is written when the picture is done.")
    return _NOTHING


def _of_text(run: KeptRun, before: KeptRun | None) -> Phrase:
    """Return whether a text was encoded again that the run before had encoded, and why ComfyUI did not keep it."""
    if before is not None and not run.loaded and run.texts and run.texts.items() <= before.texts.items():
        return phrase(
            "The same texts were encoded in the picture before, and ComfyUI has not kept them. See its start options "
            "--cache-lru and --cache-none."
        )
    return phrase("Nothing while the texts are new: each is encoded once.")


def _of_steps(sampler: str, plans: Sequence[Plan], idle: Collection[str]) -> Phrase:
    """Return what can be done about a sampler, or about all of them where it has no id."""
    behind = [plan for plan in plans if plan.link.input == "model" and (not sampler or sampler in plan.link.samplers)]
    names = dict.fromkeys(title for plan in behind for title in plan.titles if title not in idle)
    notes = [note for plan in behind for note in plan.notes]
    return notes[0] if notes and not names else _can_be_tried(names)


def _can_be_tried(names: Collection[str]) -> Phrase:
    if names:
        return phrase("Can be tried: {names}.", names=", ".join(names))
    return phrase("Nothing: what could make it faster is there already, or changes nothing here.")


_STEPS = re.compile(r"(\d+) ?[-_]?steps?(?![a-z])", re.IGNORECASE)

_FEW_BITS = {"fp8": "float8", "int8": "int8", "mxfp8": "mxfp8", "nvfp4": "nvfp4"}
"""How names of files say that weights have 8 bits or fewer, and what ComfyUI calls that; plain fp8 it always loads."""

_BITS = re.compile(r"[-_.](fp32|fp16|bf16|e4m3fn|e5m2|scaled|tensorwise|" + "|".join(_FEW_BITS) + r")(?=[-_.])", re.I)


def levers(workflow: Workflow, bypassed: Iterable[Bypassed] = ()) -> list[Phrase]:
    """Return what can be changed in the workflow, and what is known of the models that its last run has left loaded.

    ``bypassed`` nodes are those of the page that are no part of it.
    """
    return [*_fewer_steps(workflow), *_turbo_loras(workflow, bypassed), *_smaller_files(workflow), *_of_loaded_models()]


def needless_tiles(decodings: Iterable[Decoding]) -> Iterator[Phrase]:
    """Yield what is known of VAEs that a node had decode in tiles, where ComfyUI has the memory for the whole.

    VAEs that make tiles of their own are left alone.
    """
    for one in decodings:
        if one.method != "decode_tiled" or getattr(one.vae, "handles_tiling", False):
            continue
        needed, free = one.memory
        if needed < free:
            yield phrase(
                "The VAE decodes in tiles, which overlap, so parts are computed twice. The whole needs about "
                "{needed:.2g} GB by ComfyUI's estimate, and {free:.2g} GB are free: VAE Decode does it at once.",
                needed=needed / 1e9,
                free=free / 1e9,
            )


def _turbo_loras(workflow: Workflow, bypassed: Iterable[Bypassed]) -> Iterator[Phrase]:
    taken = _steps(workflow) or 0
    for node in bypassed:
        kind = node_type(node.type)
        if "MODEL" not in kind.outputs or "MODEL" not in kind.inputs.values():
            continue
        there = [file for files in kind.choices.values() for file in files]
        for value in node.values:
            fewer = _STEPS.search(value)
            if value in there and fewer and int(fewer[1]) < taken:
                yield phrase(
                    "{node} is bypassed: its LoRA, {file}, is for {fewer} steps, by its name, and this workflow takes "
                    "{steps}.",
                    node=node.title,
                    file=value,
                    fewer=int(fewer[1]),
                    steps=taken,
                )


def _smaller_files(workflow: Workflow) -> Iterator[Phrase]:
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
                yield phrase(
                    "Beside {file} lies {other}: by its name the same with fewer bits. It loads faster and takes less "
                    "memory; the picture changes.",
                    file=file,
                    other=fewer[0],
                )


def _bits(file: str) -> str:
    """Return what ComfyUI calls the few bits that a file's name tells of; empty where it tells of none."""
    told = (found.lower() for found in _BITS.findall(file))
    return next((_FEW_BITS[one] for one in told if one in _FEW_BITS), "")


def _alike(file: str) -> str:
    return _BITS.sub("", file).lower()


def _fewer_steps(workflow: Workflow) -> Iterator[Phrase]:
    """Yield the switches by which fewer steps would be sampled: each is turned, and the workflow is looked at again."""
    now = _steps(workflow)
    for id, name, value in _turnable(workflow):
        turned = _steps(workflow.edited({(id, name): not value}))
        if now is not None and turned is not None and turned < now:
            yield phrase(
                "This workflow has a switch of its own: {node} takes {fewer} steps in place of {steps} when it is "
                "{on}.",
                node=workflow.title(id),
                fewer=turned,
                steps=now,
                on=phrase("off") if value else phrase("on"),
            )


def _turnable(workflow: Workflow) -> Iterator[tuple[str, str, bool]]:
    """Yield the values that decide a switch: its own, or one of a node that gives nothing but a boolean."""
    for id in workflow:
        if not is_switch(workflow, id) and set(workflow.gives(id)) != {"BOOLEAN"}:
            continue
        for name, value in workflow.inputs(id).items():
            if isinstance(value, bool):
                yield id, name, value


def _steps(workflow: Workflow) -> int | None:
    """Return the steps of all samplers; None where those of one are not known before a run."""
    steps = [link.steps for link in workflow.model_links]
    return sum(one for one in steps if one is not None) if steps and None not in steps else None


def _of_loaded_models() -> Iterator[Phrase]:
    for patcher in loaded_patchers():
        name = type(patcher.model).__name__
        applied = patcher.lowvram_patch_counter()
        if applied:
            yield phrase(
                "{model} does not fit the device whole, so its LoRAs are applied anew each time in {count} layers. "
                "Save Checkpoint merges them once.",
                model=name,
                count=applied,
            )
