"""The text of the Optimization Report."""

from __future__ import annotations

from typing import Any

import torch

from .compat import host_version
from .stack import Technique, stack_of
from .unet import describe_model


def report_text(patcher: Any) -> str:
    """Return what is attached to a MODEL and what it did when it was last sampled, as plain text."""
    device = torch.device(patcher.load_device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    lines = [f"{describe_model(patcher)} on {name}; ComfyUI {host_version()}, torch {torch.__version__}"]
    techniques = stack_of(patcher).techniques
    if not techniques:
        lines.append("No Paceline optimizations are attached to this model.")
    for technique in techniques:
        lines.extend(_technique_lines(technique))
    return "\n".join(lines)


def _technique_lines(technique: Technique) -> list[str]:
    summary = technique.last_summary()
    lines = ["", technique.title, f"  settings: {technique.describe()}", f"  last run: {summary.text}"]
    lines.extend(f"    {detail}" for detail in summary.details)
    run = technique.runs.latest
    if run is not None and run.seconds is not None:
        lines.append(f"  the run took {run.seconds:.2f} s for {run.activity.model_calls} model calls")
    return lines
