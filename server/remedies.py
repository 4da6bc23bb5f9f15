"""The nodes that shorten each part of a step, with the most that each can save."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..optimizers.hosts.comfyui.model import stack_of
from ..optimizers.hosts.comfyui.protocols import ModelPatcher
from ..optimizers.token_merging import apply_preset
from ..workbench.recipe import Recipe, Step
from .recipes import Nodes, apply_recipe


@dataclass(frozen=True)
class Remedy:
    """The ``step`` that makes a ``part`` (a slice of a profile) shorter; ``at_most`` is a share of the whole step."""

    part: str
    step: Step
    title: str
    at_most: float


def remedies_for(model: ModelPatcher, shares: Mapping[str, float], nodes: Nodes) -> list[Remedy]:
    """Return the nodes that are not on the model yet and can be, the largest saving first.

    The bounds: token reduction leaves out its ratio of the keys and values, and with them at most as much of attention.
    Compiling fuses operators that only read and write memory, which leaves at best half of them, and most of the gaps.
    Products of int8 are at best twice as fast.
    """
    ratio = float(apply_preset("balanced", {})["ratio"])
    bounds = (
        ("attention", Step("PacelineApplyToMe", {"preset": "balanced"}), ratio * shares["attention"]),
        ("norm_elementwise", Step("PacelineCompileUNet"), shares["norm_elementwise"] / 2 + shares["gaps"]),
        ("linear", Step("PacelineQuantizeInt8"), shares["linear"] / 2),
    )
    attached = {technique.title for technique in stack_of(model).techniques}
    found = [Remedy(part, step, nodes[step.node].define_schema().display_name, bound) for part, step, bound in bounds]
    return sorted(
        (one for one in found if one.at_most >= 0.01 and one.title not in attached and _fits(model, one.step, nodes)),
        key=lambda one: -one.at_most,
    )


def _fits(model: ModelPatcher, step: Step, nodes: Nodes) -> bool:
    """Return whether a node takes the model. Quantize int8 is believed to: it would time the layers to find out."""
    if step.node == "PacelineQuantizeInt8":
        return model.load_device.type == "cuda"
    objects: dict[str, Any] = {"model": model}
    return bool(apply_recipe(Recipe("a remedy", (step,)), objects, nodes).steps)
