"""Describe a machine by everything that compiled code depends on beside the model."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


def machine_description(device: str = "cpu") -> dict[str, str]:
    """Return what compiled code depends on beside the model, as readable values.

    Args:
        device: a torch device, e.g. ``cuda:0``.
    """
    import torch

    description = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{sys.platform} {platform.machine()}",
        "cuda": str(torch.version.cuda or torch.version.hip or "none"),
    }
    if torch.device(device).type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        description["device"] = f"{properties.name} sm{properties.major}{properties.minor}"
    else:
        description["device"] = f"{torch.device(device).type} {torch.backends.cpu.get_cpu_capability()}"
    # Also code for a GPU has parts for the CPU, and those are compiled for its exact kind ("-march=native").
    description["processor"] = _processor()
    return description


@cache
def _processor() -> str:
    """Return what the CPU is called, and 8 digits that stand for its instructions."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").split("\n\n")[0].splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    instructions = " ".join(sorted(facts.get("flags", facts.get("Features", "")).split()))
    return f"{facts.get('model name', platform.machine())} {hashlib.sha256(instructions.encode()).hexdigest()[:8]}"


def fingerprint(description: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits that stand for ``description``."""
    text = json.dumps(description, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
