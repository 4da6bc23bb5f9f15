"""The text of the Optimization Report."""

from __future__ import annotations

import torch

from ...optimizers.core.devices import device_name
from ...optimizers.in_comfyui.run.comfy_technique import AnyTechnique
from ...optimizers.in_comfyui.run.stack import Stack, stack_of
from ...optimizers.in_comfyui.structure.model_facts import describe_model
from ...optimizers.in_comfyui.structure.protocols import VAE, ControlNet, ModelPatcher
from ...optimizers.in_comfyui.targets.method_proxy import NetworkTechnique, stack_on
from ...optimizers.in_comfyui.targets.vae_target import describe_vae
from .machine import host_version


def report_text(
    model: ModelPatcher | None = None, vae: VAE | None = None, control_net: ControlNet | None = None
) -> str:
    """Return the techniques on the given objects and their last runs, as plain text."""
    parts: list[tuple[str, torch.device | None, str, Stack]] = []
    if model is not None:
        parts.append((describe_model(model), model.load_device, "model", stack_of(model)))
    if vae is not None:
        parts.append((describe_vae(vae), vae.device, "VAE", stack_on(vae)))
    if control_net is not None:
        device, network = (getattr(control_net, name, None) for name in ("load_device", "control_model"))
        name = type(control_net).__name__ + (f" ({type(network).__name__})" if network is not None else "")
        parts.append((name, device, "ControlNet", stack_on(control_net)))
    return "\n\n".join("\n".join(_object_lines(*part)) for part in parts)


def _object_lines(name: str, device: torch.device | None, noun: str, stack: Stack) -> list[str]:
    place = name if device is None else f"{name} on {device_name(device)}"
    lines = [f"{place}; ComfyUI {host_version()}, torch {torch.__version__}"]
    if not stack.techniques:
        lines.append(f"No Paceline optimizations are attached to this {noun}.")
    for technique in stack.techniques:
        lines.extend(_technique_lines(technique))
    return lines


def _technique_lines(technique: AnyTechnique) -> list[str]:
    summary = technique.last_summary()
    lines = [
        "",
        technique.title,
        f"  settings: {technique.policy.describe()}",
        f"  {'runs' if technique.runs.earlier else 'last run'}: {summary.headline}",
        *(f"    {detail}" for detail in summary.details),
    ]
    run = technique.runs.latest
    if run is not None and run.seconds is not None:
        earlier, what = technique.runs.earlier, "network" if isinstance(technique, NetworkTechnique) else "model"
        calls, seconds = earlier.activity.model_calls + run.activity.model_calls, earlier.seconds + run.seconds
        runs = f"{len(earlier) + 1} runs" if earlier else "the run"
        lines.append(f"  {runs} took {seconds:.2f} s for {calls} {what} call{'' if calls == 1 else 's'}")
    return lines
