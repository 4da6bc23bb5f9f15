"""Generated model files, made once and kept in the cache until the code that makes them changes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import ModuleType

from .paths import cache_dir


def generated(name: str, maker: ModuleType | None = None) -> Path:
    """Return the file that ``checkpoints.<name>(path)``, or that of ``maker``, writes.

    Needs ``in_process.bootstrap()`` first.
    """
    from . import checkpoints, weights

    modules = {module.__file__: module for module in (maker or checkpoints, checkpoints, weights)}
    sources = b"".join(Path(file).read_bytes() for file in modules)
    folder = cache_dir() / "checkpoints" / hashlib.sha256(sources).hexdigest()[:12]
    path = folder / f"random_{name}.safetensors"
    return path if path.exists() else getattr(maker or checkpoints, name)(path)
