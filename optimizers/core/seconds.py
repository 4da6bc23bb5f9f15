"""Times that were measured on a machine, kept in a file for the next start."""

from __future__ import annotations

import json
import logging
import math
import platform
from collections.abc import Mapping
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


def keep_seconds(file: Path | None, section: str, known: Mapping[str, list[float]]) -> None:
    """Write what was measured, if the folder can be written; what the file has already wins."""
    if file is None:
        return
    content = read_seconds(file)
    content[section] = {**known, **content.get(section, {})}
    try:
        write_atomically(file, lambda path: path.write_text(json.dumps(content, indent=1)))
    except OSError as error:
        logging.warning("Paceline: times are not kept for the next start: %s", error)
