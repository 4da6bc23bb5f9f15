"""The node Model Precision."""

from __future__ import annotations

from functools import partial
from typing import Any

from comfy_api.latest import io

from ..optimizers.hosts.comfyui.precision.model import model_precision
from ..optimizers.hosts.comfyui.structure.protocols import ModelPatcher
from ..optimizers.hosts.comfyui.targets.model import ModelTarget
from ..optimizers.precision.settings import PrecisionSettings
from .common import Made, TechniqueNode, setting_input

SEARCH_ALIASES = ("dtype", "bf16", "fp16", "fp32", "half precision", "channels_last")
"""What people search both precision nodes by."""


def precision_inputs() -> list[io.Input]:
    """Return the inputs that Model Precision and VAE Precision share."""
    setting = partial(setting_input, PrecisionSettings)
    return [
        setting(
            "dtype",
            "Number format of the computation: bf16 and fp16 need half the memory of fp32, are faster on GPUs and "
            "change the image slightly. auto: ComfyUI's choice on GPUs, bf16 on processors that have instructions "
            "for it.",
        ),
        setting(
            "channels_last",
            "Store weights of convolutions and their inputs with their channels last in memory. Faster or slower, "
            "depending on the device; the image changes by rounding only.",
        ),
        setting(
            "fp16_accumulation",
            "Add up fp16 products in fp16, as ComfyUI's --fast fp16_accumulation does, but for this model only. "
            "Faster on GeForce cards, less precise.",
            advanced=True,
        ),
        setting(
            "tf32",
            "Round the inputs of fp32 products to TF32. Faster on RTX 30 and newer, for models that compute in fp32.",
            advanced=True,
        ),
    ]


class PacelineModelPrecision(TechniqueNode):
    """Choose what a model computes in."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            node_id="PacelineModelPrecision",
            display_name="Model Precision",
            description=(
                "Lets one model compute in bf16, fp16 or fp32, with channels last, fp16 accumulation or TF32. "
                "Other models, and this one before the node, stay as they are."
            ),
            search_aliases=[*SEARCH_ALIASES, "TF32", "memory", "vram", "speed"],
            inputs=[io.Model.Input("model"), *precision_inputs()],
            outputs=[io.Model.Output()],
        )

    @classmethod
    def technique(cls, model: ModelPatcher, **settings: Any) -> Made:
        technique = model_precision(model, PrecisionSettings(**settings))
        return ModelTarget(model), technique
