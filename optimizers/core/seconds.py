"""Times that were measured on a machine, kept in a file for the next start."""

from __future__ import annotations

import json
import logging
import math
import platform
from pathlib import Path

import torch

from .devices import processor_facts
from .files import read_json, write_atomically


def where(device: torch.device, dtype: torch.dtype) -> str:
    """Return the facts that times depend on beside the sizes: the machine, torch and the dtype."""
    if device.type == "cuda":
        machine = torch.cuda.get_device_name(device)
    else:
        facts = processor_facts()  # its marketing name can be empty
        names = (facts.get(key, "") for key in ("model name", "cpu family", "model"))
        name = " ".join(names).strip() if facts else platform.processor()
        machine = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()} {name}"
    return " | ".join((machine, torch.__version__, str(dtype).removeprefix("torch.")))


def read_seconds(file: Path | None) -> dict[str, dict[str, list[float]]]:
    """Return the times of a file, ``{section: {size: [one way, the other way]}}``.

    A damaged one has nothing, and is measured again.
    """
    try:
        content = read_json(file) if file is not None else {}
        known = {
            name: {key: [float(one) for one in each] for key, each in times.items()} for name, times in content.items()
        }
    except (ValueError, TypeError, AttributeError, OverflowError):
        return {}
    seconds = [each for times in known.values() for each in times.values()]
    return known if all(len(each) == 2 and all(0 < one < math.inf for one in each) for each in seconds) else {}


class KeptSeconds:
    """The times of one section of a file, by size; None for no file. What the file has wins over what is measured."""

    def __init__(self, file: Path | None, section: str) -> None:
        self._file, self._section = file, section
        self.known = read_seconds(file).get(section, {})

    def keep(self, size: str, seconds: list[float]) -> None:
        """Note what was measured, and write it for the next start if the folder can be written."""
        self.known[size] = seconds
        if self._file is None:
            return
        content = read_seconds(self._file)
        content[self._section] = {**self.known, **content.get(self._section, {})}
        try:
            write_atomically(self._file, lambda path: path.write_text(json.dumps(content, indent=1)))
        except OSError as error:
            logging.warning("Paceline: times are not kept for the next start: %s", error)
