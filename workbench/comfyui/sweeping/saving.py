"""Write a sweep into ComfyUI's output folder: the plot, the tables, and everything as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from ..comparison import find_place


def save_sweep(
    content: dict[str, Any],
    picture: Image.Image,
    tables: dict[str, str],
    prefix: str,
    workflow: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Write the files and return their descriptions, as ComfyUI's front end wants them.

    Args:
        content: for the JSON file.
        picture: the plot.
        tables: text by the ending of its file.
        prefix: start of the file names; may name a sub-folder, and hold ComfyUI's ``%year%`` and the like.
        workflow: what to put into the picture, so that dropping it on the canvas opens the workflow.

    Returns:
        ``{"plot": {"filename", "subfolder", "type"}, "json": ..., "csv": ..., ...}``

    Raises:
        InvalidSetting: if the prefix leads out of the output folder.
    """
    from comfy.cli_args import args

    # The counter goes by the names of pictures, so the plot's name is the one that takes it.
    folder, name, counter, subfolder = find_place(prefix)
    base = f"{name}_{counter:05}_"

    def place(ending: str) -> tuple[Path, dict[str, str]]:
        filename = f"{base}.{ending}"
        return Path(folder) / filename, {"filename": filename, "subfolder": subfolder, "type": "output"}

    files: dict[str, Any] = {}
    metadata = PngInfo()
    for key, value in (workflow or {}).items() if not args.disable_metadata else ():
        metadata.add_text(key, json.dumps(value))
    path, files["plot"] = place("png")
    picture.save(path, pnginfo=metadata, compress_level=4)
    texts = {"json": json.dumps(content, indent=1, allow_nan=False) + "\n", **tables}
    for ending, text in texts.items():
        path, files[ending] = place(ending)
        path.write_text(text, encoding="utf-8")
    return files
