"""The file that results are kept in while a benchmark runs, so that it can be interrupted and taken up again."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from pathlib import Path
from typing import Any

import torch

from ...core.devices import processor_name
from ...core.errors import InvalidSetting
from ...core.files import write_atomically
from .measure import Cell, Measurement

_PACKAGES = ("torch", "diffusers", "transformers", "torchao", "tomesd", "xformers", "triton")


class Record:
    """Results by cell, in ``results.json`` of ``folder``, written after each of them.

    ``setup`` is all that the results depend on. `InvalidSetting` if the folder has results of another setup, or a file
    that cannot be read.
    """

    def __init__(self, folder: Path, setup: dict[str, Any], about: dict[str, Any]) -> None:
        self.file = folder / "results.json"
        self.setup = {**setup, "machine": _machine(setup["device"]), "versions": _versions()}
        self.about = about
        self.results: dict[Cell, Measurement] = {}
        if self.file.exists():
            self._read()

    def add(self, result: Measurement) -> None:
        self.results[result.cell] = result
        content = {**self.about, "setup": self.setup, "rows": [result.as_dict() for result in self.results.values()]}
        write_atomically(self.file, lambda temporary: temporary.write_text(json.dumps(content, indent=1) + "\n"))

    def _read(self) -> None:
        try:
            content = json.loads(self.file.read_text())
            rows, setup = content["rows"], content["setup"]
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidSetting(
                f"{self.file} is not a file of results: {error!r}.", "Move it away, or give another --output."
            ) from error
        wanted = json.loads(json.dumps(self.setup))
        other = [name for name in wanted.keys() | setup.keys() if wanted.get(name) != setup.get(name)]
        if other:
            raise InvalidSetting(
                f"{self.file} has results of another setup; different: {', '.join(sorted(other))}.",
                "Give another --output, or delete the folder.",
            )
        for row in rows:
            row.pop("iterations_per_second")
            result = Measurement(**row)
            self.results[result.cell] = result


def _machine(device: str) -> str:
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{processor_name()}, {torch.get_num_threads()} threads"


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
