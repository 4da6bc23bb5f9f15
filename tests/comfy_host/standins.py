"""Let ComfyUI start where torchvision and torchaudio cannot load their compiled parts.

A machine without a GPU gets the CPU build of torch, but the package index offers only one build of torchvision
and torchaudio, made for CUDA. Their compiled libraries then fail to load and the whole import fails, although
ComfyUI needs just the pure Python part of torchvision, and torchaudio only in its audio nodes.

``install()`` adds a finder that does nothing until one of the two is imported:

- torchvision: if its compiled part cannot load, the operators it wants to see are declared (not implemented).
  Everything written in Python works; calling such an operator raises torch's own "not implemented" error.
- torchaudio and av: if absent or its compiled part cannot load, a stand-in module is imported in its place. Any
  name can be taken from it; using one raises an ImportError that says why.

Where the real packages work, neither is touched. The set-up copies this file into the virtual environment, so it
stands alone: standard library only, and torch not before one of the two is imported.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from pathlib import Path
from typing import Any

_TORCHVISION_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
# torchaudio, and PyAV, which ComfyUI imports for reading and writing videos.
_REPLACED = ("torchaudio", "av")
_kept: list[Any] = []  # torch.library.Library objects: their declarations vanish with them


def _libraries_load(package: str) -> bool:
    """Say whether ``package`` is installed and every compiled library in it loads with this torch."""
    spec = importlib.machinery.PathFinder.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return False
    import torch

    for location in spec.submodule_search_locations:
        for pattern in ("_C.*", "lib/_*"):
            for library in Path(location).glob(pattern):
                if library.suffix not in (".so", ".pyd", ".dylib"):
                    continue
                try:
                    torch.ops.load_library(str(library))
                except (OSError, RuntimeError):
                    return False
    return True


def _declare_torchvision_operators() -> None:
    import torch

    missing = [schema for schema in _TORCHVISION_OPERATORS if not hasattr(torch.ops.torchvision, schema.split("(")[0])]
    if not missing:
        return
    library = torch.library.Library("torchvision", "FRAGMENT")  # noqa: TOR901 (kept below for good)
    for schema in missing:
        library.define(schema)
    _kept.append(library)


class Unavailable:
    """Something named in a package that could not be loaded: it can be imported, but not used."""

    def __init__(self, name: str) -> None:
        self._unavailable_name = name

    def __getattr__(self, name: str) -> Unavailable:
        if name.startswith("__"):
            raise AttributeError(name)
        return Unavailable(f"{self._unavailable_name}.{name}")

    def __call__(self, *args: object, **kwargs: object) -> Any:  # noqa: D102 (not an interface)
        package = self._unavailable_name.split(".")[0]
        raise ImportError(
            f"{self._unavailable_name} was used, but {package} is absent or does not fit the installed torch. "
            f"Install the {package} that belongs to your torch build to use this."
        )

    def __mro_entries__(self, bases: tuple[type, ...]) -> tuple[type, ...]:
        return (_UnavailableBase,)


class _UnavailableBase:
    """Base of classes that were derived from something unavailable."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise ImportError(f"{type(self).__name__} needs torchaudio, which does not fit the installed torch.")


class _StandIn(types.ModuleType):
    __version__ = "0+unavailable"
    __all__: list[str] = []

    def __getattr__(self, name: str) -> Unavailable:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return Unavailable(f"{self.__name__}.{name}")


class _StandInLoader(importlib.abc.Loader):
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _StandIn(spec.name, doc="Stand-in for a package that could not be loaded.")

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run: every name is answered by the module's ``__getattr__``."""


class StandInFinder(importlib.abc.MetaPathFinder):
    """Waits for ``torchvision``, ``torchaudio`` and ``av``; see the module's description."""

    def __init__(self) -> None:
        self._checked: dict[str, bool] = {}

    def _works(self, package: str) -> bool:
        if package not in self._checked:
            self._checked[package] = True  # torch may import the package itself while we ask
            self._checked[package] = _libraries_load(package)
        return self._checked[package]

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Answer for torchaudio and av if the real one cannot load; prepare torchvision; else stay out of the way."""
        if fullname == "torchvision":
            if not self._works("torchvision") and importlib.machinery.PathFinder.find_spec("torchvision"):
                _declare_torchvision_operators()
            return None
        package = fullname.split(".")[0]
        if package in _REPLACED and not self._works(package):
            return importlib.machinery.ModuleSpec(fullname, _StandInLoader(), is_package=True)
        return None


def install() -> None:
    """Put the finder in front of the import system, once per process. Cheap: torch is not imported."""
    # By name, not isinstance: the copy in site-packages and this file define two different classes.
    if not any(type(finder).__name__ == StandInFinder.__name__ for finder in sys.meta_path):
        sys.meta_path.insert(0, StandInFinder())
