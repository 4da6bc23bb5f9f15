"""Write a comparison into ComfyUI's output folder: lossless pictures, the sheet, and all numbers as JSON."""

from __future__ import annotations

from PIL import Image

from ...measurement.picture import side_by_side, spread
from ..output_files import Entry, OutputFiles
from .findings import MOST_SHOWN, Comparison

_SAVED = ("baseline", "optimized", "other_seed", "fewer_steps")

Files = dict[str, Entry | list[Entry] | dict[str, Entry]]


def save(
    found: Comparison,
    record: dict[str, object],
    sheet: Image.Image,
    output: OutputFiles,
    workflow: dict[str, object] | None = None,
) -> Files:
    """Write the files and return what ComfyUI's front end shows: ``{"json": {"filename", "subfolder", "type"}, ...}``.

    The names of the files are added to ``record`` under ``files``; ``workflow`` goes into the sheet, so that dropping
    it on the canvas opens it.
    """
    pictures = found.pictures
    lists: dict[str, list[Entry]] = {}
    for name in _SAVED:
        images = getattr(pictures, name)
        if images is None:
            continue
        lists[name] = [
            output.save_picture(
                f"{name}_{index + 1}.png" if len(images) > 1 else f"{name}.png", Image.fromarray(images[index].numpy())
            )
            for index in (spread(len(images), MOST_SHOWN) if name == "other_seed" else found.shown)
        ]
    single = {
        "comparison": output.save_picture("comparison.png", sheet, workflow),
        "json": output.entry("comparison.json"),
    }
    if (frames := found.evidence.frames) > 1:
        first = found.evidence.worst // frames * frames
        video = slice(first, first + frames)
        motion = side_by_side(pictures.baseline[video], pictures.optimized[video])
        single["motion"] = output.save_motion("comparison.webp", motion)
    sounds: dict[str, Entry] = {}
    if found.sounds is not None and found.sounds.rate is not None:
        waves, rate = found.sounds.waves, found.sounds.rate
        sounds = {side: output.save_sound(f"{side}.wav", wave, rate) for side, wave in waves.items()}
    names: dict[str, object] = {name: [entry["filename"] for entry in entries] for name, entries in lists.items()}
    names |= {name: entry["filename"] for name, entry in single.items()}
    names |= {"sounds": {side: entry["filename"] for side, entry in sounds.items()}} if sounds else {}
    output.save_json("comparison.json", {**record, "files": names})
    return {**lists, **single, "sounds": sounds}
