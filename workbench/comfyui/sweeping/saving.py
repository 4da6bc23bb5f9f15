"""Write a sweep into ComfyUI's output folder: the plot, the tables, and everything as JSON."""

from __future__ import annotations

from PIL import Image

from ..output_files import Entry, OutputFiles


def save_sweep(
    content: dict[str, object],
    picture: Image.Image,
    tables: dict[str, str],
    prefix: str,
    workflow: dict[str, object] | None = None,
    keep: bool = True,
) -> dict[str, Entry]:
    """Write the files and return their descriptions, as ComfyUI's front end wants them.

    Args:
        content: for the JSON file.
        picture: the plot.
        tables: text by the ending of its file.
        prefix: see :class:`OutputFiles`.
        workflow: what to put into the picture, so that dropping it on the canvas opens the workflow.
        keep: see :class:`OutputFiles`.

    Returns:
        ``{"plot": {"filename", "subfolder", "type"}, "json": ..., "csv": ..., ...}``

    Raises:
        InvalidSetting: if the prefix leads out of the output folder.
    """
    # The number goes by the names of pictures, so the plot's name is the one that takes it.
    output = OutputFiles(prefix, keep)
    files = {"plot": output.save_picture(".png", picture, workflow), "json": output.save_json(".json", content)}
    return files | {ending: output.save_text(f".{ending}", text) for ending, text in tables.items()}
