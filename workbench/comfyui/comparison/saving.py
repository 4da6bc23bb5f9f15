"""Write a comparison into ComfyUI's output folder: lossless pictures, the sheet, and all numbers as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from ....core.errors import InvalidSetting

MOST_SAVED = 16
"""Of a longer batch or video, only the first pictures are written."""


def find_place(prefix: str) -> tuple[str, str, int, str]:
    """Return the folder, the start of the file names, the next free number, and the sub-folder.

    Raises:
        InvalidSetting: if the prefix leads out of the output folder.
    """
    import folder_paths

    try:
        folder, name, counter, subfolder, _ = folder_paths.get_save_image_path(
            prefix, folder_paths.get_output_directory()
        )
    except Exception:  # ComfyUI raises the base class itself
        raise InvalidSetting(
            f"filename_prefix is {prefix!r}, which leads out of ComfyUI's output folder.",
            "Choose a name, or a sub-folder and a name: paceline/compare.",
        ) from None
    return folder, name, counter, subfolder


def save(
    record: dict[str, Any],
    pictures: dict[str, Any],
    sheet: Image.Image,
    prefix: str,
    workflow: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Write the files and return their descriptions, as ComfyUI's front end wants them.

    Args:
        record: the numbers; the names of the files are added under ``files``.
        pictures: uint8 ``[pictures, height, width, 3]`` by name.
        sheet: the picture to show.
        prefix: start of the file names; may name a sub-folder, and hold ComfyUI's ``%year%`` and the like.
        workflow: what to put into the sheet, so that dropping it on the canvas opens the workflow.

    Returns:
        ``{"comparison": {"filename", "subfolder", "type"}, "json": ..., "baseline": [...], ...}``

    Raises:
        InvalidSetting: if the prefix leads out of the output folder.
    """
    from comfy.cli_args import args

    folder, name, counter, subfolder = find_place(prefix)

    def place(what: str) -> tuple[Path, dict[str, str]]:
        filename = f"{name}_{counter:05}_{what}"
        return Path(folder) / filename, {"filename": filename, "subfolder": subfolder, "type": "output"}

    files: dict[str, Any] = {}
    for what, images in pictures.items():
        files[what] = []
        for number, image in enumerate(images[:MOST_SAVED]):
            path, entry = place(f"{what}_{number + 1}.png" if len(images) > 1 else f"{what}.png")
            Image.fromarray(image.numpy()).save(path, compress_level=4)
            files[what].append(entry)
    path, files["comparison"] = place("comparison.png")
    metadata = PngInfo()
    for key, value in (workflow or {}).items() if not args.disable_metadata else ():
        metadata.add_text(key, json.dumps(value))
    sheet.save(path, pnginfo=metadata, compress_level=4)
    path, files["json"] = place("comparison.json")
    names = {what: [e["filename"] for e in entry] if isinstance(entry, list) else entry["filename"]
             for what, entry in files.items()}  # fmt: skip
    path.write_text(json.dumps({**record, "files": names}, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return files
