"""The text of the Optimization Report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ...core.devices import device_name
from ...optimizers.hosts.comfyui.compat import host_version
from ...optimizers.hosts.comfyui.controlnet import describe_controlnet
from ...optimizers.hosts.comfyui.method_proxy import NetworkTechnique, stack_on
from ...optimizers.hosts.comfyui.model import describe_model, stack_of
from ...optimizers.hosts.comfyui.vae import describe_vae

if TYPE_CHECKING:
    from ...optimizers.hosts.comfyui.protocols import VAE, ControlNet, ModelPatcher
    from ...optimizers.hosts.comfyui.stack import AnyTechnique, Stack


def report_text(
    model: ModelPatcher | None = None, vae: VAE | None = None, control_net: ControlNet | None = None
) -> str:
    """Return what is attached to the given objects and what it did when they were last used, as plain text."""
    parts: list[tuple[str, torch.device | None, str, Stack]] = []
    if model is not None:
        parts.append((describe_model(model), model.load_device, "model", stack_of(model)))
    if vae is not None:
        parts.append((describe_vae(vae), vae.device, "VAE", stack_on(vae)))
    if control_net is not None:
        device = getattr(control_net, "load_device", None)
        parts.append((describe_controlnet(control_net), device, "ControlNet", stack_on(control_net)))
    return "\n\n".join("\n".join(_object_lines(*part)) for part in parts)


def _object_lines(name: str, device: torch.device | None, noun: str, stack: Stack) -> list[str]:
    place = f" on {device_name(device)}" if device is not None else ""
    lines = [f"{name}{place}; ComfyUI {host_version()}, torch {torch.__version__}"]
    if not stack.techniques:
        lines.append(f"No Paceline optimizations are attached to this {noun}.")
    for technique in stack.techniques:
        lines.extend(_technique_lines(technique))
    return lines


def _technique_lines(technique: AnyTechnique) -> list[str]:
    summary = technique.last_summary()
    lines = ["", technique.title, f"  settings: {technique.describe()}", f"  last run: {summary.headline}"]
    lines.extend(f"    {detail}" for detail in summary.lines)
    run = technique.runs.latest
    if run is not None and run.seconds is not None:
        calls = "network calls" if isinstance(technique, NetworkTechnique) else "model calls"
        lines.append(f"  the run took {run.seconds:.2f} s for {run.activity.model_calls} {calls}")
    return lines
