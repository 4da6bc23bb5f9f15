"""ComfyUI's own nodes that make an evaluation shorter: tried, measured and offered beside ours.

They are found by their ids among the nodes of the running ComfyUI: where one is not there, it is not tried. Not among
them is ``QwenImage21Cache``: that network keeps its prefix by itself, and the node only chooses where and how exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from ..core.errors import UnsupportedModel
from ..core.phrases import translatable
from ..optimizers.hosts.comfyui.structure.protocols import ModelPatcher
from ..workbench.recipe import Step, Value
from .node_types import class_of, node_type

_COMPILE = (
    "TorchCompileModel",
    "ModelCompile+",  # cubiq/ComfyUI_essentials
    # kijai/ComfyUI-KJNodes
    "TorchCompileModelAdvanced",
    "TorchCompileModelFluxAdvanced",
    "TorchCompileModelFluxAdvancedV2",
    "TorchCompileModelWanVideo",
    "TorchCompileModelWanVideoV2",
    "TorchCompileModelQwenImage",
    "TorchCompileModelHyVideo",
    "TorchCompileLTXModel",
    "TorchCompileCosmosModel",
)

DO_WHAT_OURS_DOES = {
    "TomePatchModel": "PacelineApplyToMe",
    "ToDoPatchModel": "PacelineApplyToMe",  # ethansmith2000/comfy-todo
    "EasyCache": "PacelineReuseSteps",
    "LazyCache": "PacelineReuseSteps",
    "WanVideoTeaCacheKJ": "PacelineReuseSteps",
    "PathchSageAttentionKJ": "PacelineSetAttentionProcessor",
    "PatchFlashAttentionKJ": "PacelineSetAttentionProcessor",
    **dict.fromkeys(_COMPILE, "PacelineCompileUNet"),
}
"""Our node by the other's type. Only what changes a MODEL: nothing else is tried."""


MERGING, ATTENTION = "PacelineApplyToMe", "PacelineSetAttentionProcessor"

_LEAST_CHANNELS = 16
"""Of a latent, where a token is one of its places or more: networks with fewer have heads of other sizes."""


@dataclass(frozen=True)
class Other:
    """A node that takes a MODEL and hands on a faster one.

    Attributes:
        note: template of what a person should know of it; ``node`` is its title.
        inputs: values other than its defaults, those of a choice's own inputs with dots in their names.
        same: whether the picture stays the same.
        keeps: whether the first evaluation of a run makes what the others use.
        device: torch's type of the only one it runs on; empty for any.
        network: class of the only network that it is for; empty for any.
        beside: type of a node without which it has nothing to do; empty for none.
        apart: nodes beside which it gains nothing, or they do not.
    """

    note: str
    inputs: Mapping[str, Value] = field(default_factory=dict)
    same: bool = False
    keeps: bool = False
    device: str = ""
    network: str = ""
    beside: str = ""
    apart: tuple[str, ...] = ()


OTHERS: Mapping[str, Other] = {
    "WanAnimate2Cache": Other(
        translatable("{node} takes memory, by ComfyUI about 12.5 GB for 81 frames of 480 x 832 pixels."),
        same=True,
        keeps=True,
        network="comfy.ldm.wan.model_animate2.WanAnimate2Model",
        beside="WanAnimate2ToVideo",
    ),
    "FluxKVCache": Other(
        translatable("{node} is for models that were trained for it; with others it changes the picture."),
        keeps=True,
        network="comfy.ldm.flux.model.Flux",
        beside="ReferenceLatent",
    ),
    "ModelAttentionBackend": Other(
        translatable(
            "{node} is not watched for wrong numbers; Set Attention Processor, kitchen, has the same kernel and is."
        ),
        inputs={"attention": "comfy kitchen attention"},
        apart=(ATTENTION,),
    ),
    "BlockSparseAttention": Other(
        translatable("{node} pays from about 12,288 tokens on: long videos, and very large pictures."),
        inputs={"selection": "sol-attn", "selection.tau": 1.3},
        device="cuda",
        apart=(ATTENTION, "ModelAttentionBackend", MERGING),
    ),
}
"""By their ids, exact ones first."""


def apart(steps: Mapping[str, Step]) -> list[frozenset[str]]:
    """Return the pairs of titles that are not offered together."""
    return [
        frozenset((first, second))
        for first, second in combinations(steps, 2)
        if any(
            there.node in OTHERS and other.node in OTHERS[there.node].apart
            for there, other in ((steps[first], steps[second]), (steps[second], steps[first]))
        )
    ]


def with_other(step: Step, model: ModelPatcher, shape: Sequence[int]) -> ModelPatcher:
    """Return a MODEL behind one of these nodes; ``shape`` is of the latent.

    `UnsupportedModel` says why it has nothing to do there.
    """
    other, kind = OTHERS[step.node], class_of(step.node)
    classes = [f"{base.__module__}.{base.__qualname__}" for base in type(model.model.diffusion_model).__mro__]
    if other.network not in ("", *classes):
        raise UnsupportedModel(f"{step.node} is for {other.network.rpartition('.')[2]}, this network is another one.")
    values = {**node_type(step.node).defaults, **step.inputs}
    places = math.prod(shape) // shape[0] // _LEAST_CHANNELS
    if places < values.get("min_tokens", 0):
        raise UnsupportedModel(f"{step.node} works from {values['min_tokens']} tokens on, here are at most {places}.")
    node = kind if hasattr(kind, "GET_SCHEMA") else kind()  # classes of the older kind have methods
    made = getattr(node, kind.FUNCTION)(model=model, **_nested(values))
    changed: ModelPatcher = getattr(made, "result", made)[0]
    return changed


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as ComfyUI hands them to a node: a choice with inputs of its own is a dictionary."""
    nested: dict[str, Any] = {name: value for name, value in values.items() if "." not in name}
    for name, value in values.items():
        choice, dot, own = name.partition(".")
        if dot:
            made = nested[choice]
            nested[choice] = (made if isinstance(made, dict) else {choice: made}) | {own: value}
    return nested
