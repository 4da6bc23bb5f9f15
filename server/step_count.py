"""How many steps a workflow samples with, as far as that stands in it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from ..workbench.comfyui.prompt import Link, Prompt, link_of, links_into, node_before, output_types, reached, way_back
from ..workbench.comfyui.segment import Segment
from .wires import Wire

FEW = 8
"""As many steps turbo and lightning models take at most: each changes the picture too much to be left out."""

_NUMBERS = ("INT", "FLOAT", "BOOLEAN", "COMFY_MATCHTYPE_V3")
"""Types of outputs of nodes that only compute or choose, without files and models; the last is a switch's."""


def steps_behind(prompt: Prompt, wire: Wire) -> int | None:
    """Return the most steps of a sampler that is given a model by a wire; None where that is not known yet."""
    receivers = [node for node, _ in wire.receivers]
    samplers = [id for id in prompt if id in receivers or node_before(prompt, id, "guider") in receivers]
    counts = [count for id in samplers for count in _counts(prompt, id)]
    return max(counts, default=None)


def _counts(prompt: Prompt, sampler: str) -> Iterator[int]:
    inputs = prompt[sampler]["inputs"]
    levels = _known(prompt, inputs.get("sigmas"), (*_NUMBERS, "SIGMAS"))
    if hasattr(levels, "shape"):
        yield max(0, levels.shape[-1] - 1)
        return
    # Noise levels that a model has a part in, or the size of a picture.
    schedule = way_back(node_before(prompt, sampler, "sigmas"), lambda id: node_before(prompt, id, "sigmas"))
    for id in (sampler, *schedule):
        steps = _known(prompt, prompt[id]["inputs"].get("steps"), _NUMBERS)
        if isinstance(steps, (int, float)):
            yield int(steps)
            return


def _known(prompt: Prompt, value: Any, types: Collection[str]) -> Any:
    """Return a value, also one that nodes make which give nothing but these types; None if others have a part in it."""
    link = link_of(value)
    if link is None:
        return value
    if link[0] not in prompt:
        return None
    made_by = {link[0]: None} | reached([link[0]], lambda id: (origin for origin, _ in links_into(prompt, id).values()))
    if any(not (given := output_types(prompt[id]["class_type"])) or not {*given} <= {*types} for id in made_by):
        return None
    return _run(prompt, link)


def _run(prompt: Prompt, link: Link) -> Any:
    try:
        return Segment(prompt, link).run({})
    except Exception:  # other people's code, given what a workflow in the making has; the run will say what is wrong
        return None
