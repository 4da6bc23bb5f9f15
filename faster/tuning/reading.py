"""Read the workflow that a person names: its API format, or a picture that ComfyUI has saved with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...core.errors import InvalidSetting
from ...core.files import parse_json
from ..workflow import Workflow

_PNG = b"\x89PNG\r\n\x1a\n"
_OF_A_NODE = ("class_type", "inputs", "_meta")
"""What belongs to the workflow. ComfyUI also leaves there what it has found out in that run."""

_HINT = "Name a workflow in the API format (in ComfyUI: File > Export (API)), or a PNG that ComfyUI has saved."


def read_workflow(path: Path) -> dict[str, Any]:
    """Return the prompt in a file; `InvalidSetting` if the file cannot be read, or has none."""
    try:
        with path.open("rb") as file:
            is_picture = file.read(len(_PNG)) == _PNG
        text = _prompt_in(path) if is_picture else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is neither UTF-8 text nor a whole PNG"
        raise InvalidSetting(f"{path} cannot be read ({reason}).", _HINT) from None
    try:
        found = parse_json(text)
        json.dumps(found, ensure_ascii=False).encode()
    except ValueError as error:
        raise InvalidSetting(f"{path} cannot be read ({error}).", _HINT) from None
    if isinstance(found, dict) and isinstance(found.get("nodes"), list):
        # Only the page turns one into a prompt: subgraphs, bypassed nodes, primitives and widgets are its own.
        raise InvalidSetting(
            f"{path} is what ComfyUI's Save writes, which is no workflow in the API format.",
            "Open it in ComfyUI and choose File > Export (API), or name a PNG that ComfyUI has saved with it.",
        )
    workflow = Workflow.read(found)
    return {id: {key: node[key] for key in _OF_A_NODE if key in node} for id, node in workflow.items()}


def _prompt_in(path: Path) -> str:
    """Return the prompt that stands before the pixels of a PNG, which are not read."""
    from PIL import Image

    try:
        with Image.open(path, formats=["PNG"]) as picture:
            text = picture.info.get("prompt")
    except (ValueError, Image.DecompressionBombError) as error:
        raise InvalidSetting(f"{path} cannot be read ({error}).", _HINT) from None
    if not isinstance(text, str):
        raise InvalidSetting(
            f"{path} has no workflow in it: ComfyUI was told to leave it out, or another program has saved it since.",
            _HINT,
        )
    return text
