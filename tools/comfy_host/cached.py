"""Generated model files, made once and kept in the cache until the code that makes them changes."""

from __future__ import annotations

import hashlib
from pathlib import Path

from .paths import cache_dir


def generated(name: str) -> Path:
    """Return the file that ``checkpoints.<name>(path)`` writes. Needs ``in_process.bootstrap()`` first.

    Args:
        name: ``sd15``, ``sd15_smallest``, ``controlnet`` or ``lora``.
    """
    from . import checkpoints, weights

    sources = b"".join(Path(module.__file__).read_bytes() for module in (checkpoints, weights))
    folder = cache_dir() / "checkpoints" / hashlib.sha256(sources).hexdigest()[:12]
    path = folder / f"random_{name}.safetensors"
    return path if path.exists() else getattr(checkpoints, name)(path)
