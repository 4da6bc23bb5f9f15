"""The presets that come with the pack: the nodes an expert would wire for this model on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch

from ..core.errors import require_choice
from ..optimizers.hosts.comfyui.quantization.technique import int8_gains
from ..optimizers.step_reuse.settings import BUDGETS
from ..workbench.comfyui.machine import host_device
from ..workbench.recipe import Recipe, Step

if TYPE_CHECKING:
    from ..optimizers.hosts.comfyui.protocols import ModelPatcher

BUILT_IN = ("lossless", "balanced", "fast")


@dataclass(frozen=True)
class Machine:
    """What the choice depends on.

    Attributes:
        device: torch's device type: ``cuda``, ``cpu``, ``mps``, ...
        can_compile: whether torch.compile's default backend can generate code here.
        fast_int8: whether an int8 matrix product is faster than the float one here.
    """

    device: str
    can_compile: bool = False
    fast_int8: bool = False


def machine_for(model: ModelPatcher, name: str) -> Machine:
    """Return what decides which techniques of the preset ``name`` suit a MODEL on the device it runs on."""
    device = torch.device(model.load_device)
    gains = name == "fast" and int8_gains(model)  # timed, and no other preset asks for it
    return Machine(device.type, _can_compile(device.type), gains)


def machine_here() -> Machine:
    """Return what is known of the machine before a model is loaded; whether int8 is faster there is not."""
    device = host_device().type
    return Machine(device, _can_compile(device))


def _can_compile(device: str) -> bool:
    return device == "cuda" and find_spec("triton") is not None


REUSE = {"balanced": BUDGETS["balanced"], "fast": BUDGETS["fast"]}
"""Presets that can leave out steps, with the budget of Reuse Steps."""


def built_in_recipe(name: str, machine: Machine, reuse_steps: bool = False) -> Recipe:
    """Return the recipe ``name`` for ``machine``.

    With ``reuse_steps``, presets that may change the picture also leave out steps; Reuse Steps finds out from the
    schedule whether that pays. It is off by default, as saved workflows must go on to draw what they drew.

    ``lossless`` changes no more than rounding does; ``balanced`` costs detail that is hard to see; ``fast`` costs
    detail that can be seen side by side.

    Raises:
        InvalidSetting: for another name.
    """
    require_choice("preset", name, BUILT_IN)
    makers: dict[str, Callable[[Machine], list[Step]]] = {"lossless": _lossless, "balanced": _balanced, "fast": _fast}
    sentences = {
        "lossless": "The same picture but for rounding.",
        "balanced": "A little detail for speed: differences are hard to see.",
        "fast": "More detail for more speed: compare the images before you use it.",
    }
    steps = makers[name](machine)
    if reuse_steps and name in REUSE:
        steps.append(Step("PacelineReuseSteps", {"budget": REUSE[name]}))
    return Recipe(name, tuple(steps), sentences[name])


def _lossless(machine: Machine) -> list[Step]:
    steps = [Step("PacelineSetAttentionProcessor", {"backend": "auto"})]
    # Compiling pays on GPUs. On CPUs the time goes into matrix products that it cannot improve (1.00x to 1.09x
    # measured), after minutes of waiting.
    if machine.can_compile and machine.device == "cuda":
        steps += [Step("PacelineCompileUNet", {}), Step("PacelineCompileVAE", {})]
    return steps


def _balanced(machine: Machine) -> list[Step]:
    return [Step("PacelineApplyToMe", {"preset": "balanced"}), *_lossless(machine)]


def _fast(machine: Machine) -> list[Step]:
    steps = [Step("PacelineApplyToMe", {"preset": "fast"}), *_lossless(machine)]
    if machine.fast_int8:
        steps.insert(0, Step("PacelineQuantizeInt8", {"preset": "balanced"}))
    return steps
