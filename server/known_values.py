"""Values of a workflow that are known before it runs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..workbench.comfyui.prompt import Link, Prompt, link_of, needed_for, output_types
from ..workbench.comfyui.segment import Segment

NUMBERS = ("INT", "FLOAT", "BOOLEAN", "COMFY_MATCHTYPE_V3")
"""Types of outputs of nodes that only compute or choose, without files and models; the last is a switch's."""


def known(prompt: Prompt, value: Any, types: Collection[str]) -> Any:
    """Return a value, also one that nodes make which give nothing but these types; None if others have a part in it."""
    link = link_of(value)
    if link is None:
        return value
    if link[0] not in prompt:
        return None
    made_by = needed_for(prompt, link[0])
    if any(not (given := output_types(prompt[id]["class_type"])) or not {*given} <= {*types} for id in made_by):
        return None
    return _run(prompt, link)


def _run(prompt: Prompt, link: Link) -> Any:
    try:
        return Segment(prompt).run([link], {})[link]
    except Exception:  # other people's code, given what a workflow in the making has; the run will say what is wrong
        return None
