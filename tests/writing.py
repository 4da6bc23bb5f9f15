"""Where the ComfyUI in the tests' process writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def comfyui_writes_to(**folders: Path) -> Iterator[None]:
    """Let ComfyUI's folders ``output``, ``user`` or ``temp`` be others as long as the context lasts."""
    import folder_paths

    before = {kind: getattr(folder_paths, f"get_{kind}_directory")() for kind in folders}
    for kind, path in folders.items():
        getattr(folder_paths, f"set_{kind}_directory")(str(path))
    try:
        yield
    finally:
        for kind, path in before.items():
            getattr(folder_paths, f"set_{kind}_directory")(path)
