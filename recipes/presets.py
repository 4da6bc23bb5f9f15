"""The presets that come with the pack: the nodes an expert would wire for this model on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

import torch

from ..core.choices import CHOICES
from ..core.errors import require_choice
from ..optimizers.hosts.comfyui.quantization.linear import int8_layers
from ..optimizers.hosts.comfyui.quantization.technique import int8_gains
from ..optimizers.hosts.comfyui.structure.protocols import ModelPatcher
from ..workbench.comfyui.machine import host_device
from ..workbench.recipe import Recipe, Step

BUILT_IN = tuple(CHOICES)


@dataclass(frozen=True)
class Machine:
    """The facts that a preset's choice depends on.

    ``device`` is torch's type (``cuda``, ``cpu``, ``mps``, ...); ``can_compile`` says whether torch.compile's default
    backend can generate code here, ``fast_int8`` whether an int8 matrix product is faster than the float one, and
    ``in_int8`` whether the model has int8 weights already.
    """

    device: str
    can_compile: bool = False
    fast_int8: bool = False
    in_int8: bool = False


def machine_for(model: ModelPatcher, name: str) -> Machine:
    """Return the facts by which techniques of the preset ``name`` are chosen for a MODEL on its device."""
    device = torch.device(model.load_device)
    in_int8 = name == "fast" and bool(int8_layers(model.model.diffusion_model))
    gains = name == "fast" and not in_int8 and int8_gains(model)  # timed, and no other preset asks for it
    return Machine(device.type, _can_compile(device.type), gains, in_int8)


def machine_here() -> Machine:
    """Return the machine before a model is loaded; whether int8 is faster is not known then."""
    device = host_device().type
    return Machine(device, _can_compile(device))


def _can_compile(device: str) -> bool:
    return device == "cuda" and find_spec("triton") is not None


def built_in_recipe(name: str, machine: Machine, reuse_steps: bool = False) -> Recipe:
    """Return the recipe ``name`` for ``machine``; `InvalidSetting` for another name.

    With ``reuse_steps`` those that change pictures also leave out steps; off by default, because saved workflows must
    go on to draw what they drew.
    """
    require_choice("preset", name, BUILT_IN)
    choice = CHOICES[name]
    steps = [Step("PacelineSetAttentionProcessor", {"backend": "auto"})]
    # Compiling pays on GPUs. On CPUs the time goes into matrix products that it cannot improve (1.00x to 1.09x
    # measured), after minutes of waiting.
    if machine.can_compile and machine.device == "cuda":
        steps += [Step("PacelineCompileUNet"), Step("PacelineCompileVAE")]
    if choice.merging:
        steps.insert(0, Step("PacelineApplyToMe", {"preset": choice.merging}))
    if name == "fast" and machine.fast_int8:
        steps.insert(0, Step("PacelineQuantizeInt8", {"preset": "balanced"}))
    if reuse_steps and choice.merging:
        steps.append(Step("PacelineReuseSteps", {"budget": choice.limit}))
    already = " The model has int8 weights already, so Quantize int8 is not among the steps." if machine.in_int8 else ""
    return Recipe(name, tuple(steps), f"{choice.label}. {choice.sentence}{already}")
