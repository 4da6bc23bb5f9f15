"""The text of the Optimization Report."""

from __future__ import annotations

from typing import Any

import torch

from .compat import host_version
from .controlnet import describe_controlnet, stack_of_controlnet
from .method_proxy import NetworkTechnique
from .model import describe_model, stack_of
from .stack import Stack, Technique
from .vae import describe_vae, stack_of_vae


def report_text(model: Any = None, vae: Any = None, control_net: Any = None) -> str:
    """Return what is attached to the given objects and what it did when they were last used, as plain text."""
    parts = []
    if model is not None:
        parts.append((describe_model(model), model.load_device, "model", stack_of(model)))
    if vae is not None:
        parts.append((describe_vae(vae), vae.device, "VAE", stack_of_vae(vae)))
    if control_net is not None:
        device = getattr(control_net, "load_device", None)
        parts.append((describe_controlnet(control_net), device, "ControlNet", stack_of_controlnet(control_net)))
    return "\n\n".join("\n".join(_object_lines(*part)) for part in parts)


def _object_lines(name: str, device: Any, noun: str, stack: Stack) -> list[str]:
    place = f" on {_device_name(device)}" if device is not None else ""
    lines = [f"{name}{place}; ComfyUI {host_version()}, torch {torch.__version__}"]
    if not stack.techniques:
        lines.append(f"No Paceline optimizations are attached to this {noun}.")
    for technique in stack.techniques:
        lines.extend(_technique_lines(technique))
    return lines


def _device_name(device: Any) -> str:
    device = torch.device(device)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def _technique_lines(technique: Technique[Any]) -> list[str]:
    summary = technique.last_summary()
    lines = ["", technique.title, f"  settings: {technique.describe()}", f"  last run: {summary.headline}"]
    lines.extend(f"    {detail}" for detail in summary.lines)
    run = technique.runs.latest
    if run is not None and run.seconds is not None:
        calls = "network calls" if isinstance(technique, NetworkTechnique) else "model calls"
        lines.append(f"  the run took {run.seconds:.2f} s for {run.activity.model_calls} {calls}")
    return lines
