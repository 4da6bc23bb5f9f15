"""Write a comparison into ComfyUI's output folder: lossless pictures, the sheet, and all numbers as JSON."""

from __future__ import annotations

from PIL import Image

from ..output_files import Entry, OutputFiles
from .pictures import Pictures

_SAVED = ("baseline", "optimized", "other_seed", "fewer_steps")
_MOST_SAVED = 16
"""Of a longer batch or video, only the first pictures are written."""


def save(
    record: dict[str, object],
    pictures: Pictures,
    sheet: Image.Image,
    prefix: str,
    workflow: dict[str, object] | None = None,
    keep: bool = True,
) -> dict[str, Entry | list[Entry]]:
    """Write the files and return what ComfyUI's front end shows: ``{"json": {"filename", "subfolder", "type"}, ...}``.

    The names of the files are added to ``record`` under ``files``; ``workflow`` goes into the sheet, so that dropping
    it on the canvas opens it. `InvalidSetting` if the prefix leads out of the output folder.
    """
    output = OutputFiles(prefix, keep)
    lists: dict[str, list[Entry]] = {}
    for name in _SAVED:
        images = getattr(pictures, name)
        if images is None:
            continue
        lists[name] = [
            output.save_picture(
                f"{name}_{number}.png" if len(images) > 1 else f"{name}.png", Image.fromarray(image.numpy())
            )
            for number, image in enumerate(images[:_MOST_SAVED], 1)
        ]
    single = {
        "comparison": output.save_picture("comparison.png", sheet, workflow),
        "json": output.entry("comparison.json"),
    }
    names: dict[str, object] = {name: [entry["filename"] for entry in entries] for name, entries in lists.items()}
    names |= {name: entry["filename"] for name, entry in single.items()}
    output.save_json("comparison.json", {**record, "files": names})
    return {**lists, **single}
