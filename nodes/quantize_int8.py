"""The node Quantize int8."""

from __future__ import annotations

from functools import partial
from typing import Any

from comfy_api.latest import io

from ..optimizers.hosts.comfyui.quantization.technique import quantize
from ..optimizers.hosts.comfyui.structure.model import require_model
from ..optimizers.hosts.comfyui.structure.protocols import ModelPatcher
from ..optimizers.hosts.comfyui.targets.model import ModelTarget
from ..optimizers.quantization.settings import QuantizationSettings
from .common import Made, TechniqueNode, setting_input


class PacelineQuantizeInt8(TechniqueNode):
    """Compute the linear layers that gain from it in 8-bit integers."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        setting = partial(setting_input, QuantizationSettings)
        return cls.schema(
            "Quantize int8",
            "Computes in int8 the linear layers that are measured to be faster that way on this machine; their "
            "weights need half the memory of 16 bits. LoRAs work before and after this node.",
            "w8a8, torchao, quantization, low memory, vram, speed, faster",
            inputs=[
                io.Model.Input("model", tooltip="A full-precision model (fp16, bf16 or fp32), or a file in int8."),
                setting(
                    "preset",
                    "How much a layer's output may be off: quality allows least, speed most. Other layers stay in "
                    "full precision, and so do those that are not faster in int8.",
                ),
                setting(
                    "mode",
                    "int8: weights and arithmetic, for speed. weight_only: only the weights, to save memory; costs a "
                    "little speed and changes the image less.",
                ),
                setting(
                    "include",
                    "Layers that are quantised whatever their speed and error: comma-separated names or patterns, "
                    "e.g. *.attn2.*, time_embed*. The output layers lists all names.",
                    advanced=True,
                ),
                setting(
                    "exclude",
                    "Layers that stay in full precision: comma-separated names or patterns, e.g. attn2, *.ff.*.",
                    advanced=True,
                ),
                setting(
                    "device",
                    "Where the weights are quantised, one layer at a time. auto: the GPU where there is one.",
                    advanced=True,
                ),
            ],
            outputs=[io.String.Output("layers", display_name="layers")],
        )

    @classmethod
    def technique(cls, model: ModelPatcher, **settings: Any) -> Made:
        require_model(model)
        technique = quantize(model, QuantizationSettings(**settings))
        policy = technique.policy
        lines = "\n".join((policy.describe(), *policy.details(), "", policy.table()))
        return ModelTarget(model), technique, lines
