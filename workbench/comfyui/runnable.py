"""Whether ComfyUI would run a prompt: pictures, sounds and files that a workflow names may be missing."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from typing import Any

from .prompt import Prompt, link_of
from .workflow import Workflow

_SHOWN = 3
"""Missing things that are named; further ones are counted."""


def why_refused(prompt: Prompt, last: str) -> str:
    """Return why ComfyUI would refuse to run the ``last`` node, naming inputs; empty if it would run it."""
    import execution

    checked = {id: copy.deepcopy(node) for id, node in prompt.items() if id != last}
    # ComfyUI checks only what leads into inputs that a node has declared.
    links = {link for node in prompt.values() for value in node["inputs"].values() if (link := link_of(value))}
    for id, slot in links:
        checked[f"{id} {slot}"] = {"class_type": "PreviewAny", "inputs": {"source": [id, slot]}}
    _, error, _, found = asyncio.run(execution.validate_prompt("", checked, None))
    troubles = [
        _sentence(Workflow(prompt).title(id), id, error) for id, about in found.items() for error in about["errors"]
    ]
    if not troubles and error is not None:
        troubles = [str(error["message"]).rstrip(".")]
    more = f" ({len(troubles) - _SHOWN} more)" if len(troubles) > _SHOWN else ""
    return f"ComfyUI cannot run this workflow: {'; '.join(troubles[:_SHOWN])}{more}." if troubles else ""


def _sentence(title: str, id: str, error: Mapping[str, Any]) -> str:
    about = error.get("extra_info", {})
    name, node = str(about.get("input_name", "")), f"{title} (node {id})"
    if error["type"] == "required_input_missing":
        return f"{node} has nothing at its input {name}"
    if error["type"] == "value_not_in_list":
        return f"{node} needs {about.get('received_value')!r} for {name}, which is not there"
    return f"{node}: {error['message']}: {error['details']}".rstrip(".: ")
