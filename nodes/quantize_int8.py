"""The node Quantize int8."""

from __future__ import annotations

from functools import partial
from typing import Any

from comfy_api.latest import io

from ..optimizers.hosts.comfyui.model import ModelTarget, require_model
from ..optimizers.hosts.comfyui.protocols import Conditioning, Latent, ModelPatcher
from ..optimizers.hosts.comfyui.quantization.technique import quantize
from ..optimizers.quantization.settings import QuantizationSettings
from ..workbench.comfyui.links import fitting, mismatch_explained, require_conditioning, require_latent
from .common import Made, TechniqueNode, setting_input


class PacelineQuantizeInt8(TechniqueNode):
    """Compute the linear layers that gain from it in 8-bit integers."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        setting = partial(setting_input, QuantizationSettings)
        return cls.schema(
            node_id="PacelineQuantizeInt8",
            display_name="Quantize int8",
            description=(
                "Computes in int8 the linear layers that are measured to be faster that way on this machine; their "
                "weights need half the memory of 16 bits. LoRAs work before and after this node."
            ),
            search_aliases=["w8a8", "torchao", "quantization", "convrot", "low memory", "vram", "speed", "faster"],
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
                    "rotation",
                    "auto: rotates the inputs of layers whose error is too large otherwise (ConvRot), which costs a "
                    "little of the gain. off: such layers stay in full precision.",
                    advanced=True,
                ),
                setting(
                    "device",
                    "Where the weights are quantised, one layer at a time. auto: the GPU where there is one.",
                    advanced=True,
                ),
                io.Latent.Input(
                    "latent",
                    optional=True,
                    tooltip="The size you will sample, on which the choice of layers depends. Not connected: the "
                    "model's usual size.",
                ),
                io.Conditioning.Input(
                    "conditioning",
                    optional=True,
                    tooltip="Needs latent: one sampling step shows which layers have outliers. Not connected: random "
                    "numbers stand in for their inputs.",
                ),
            ],
            outputs=[io.Model.Output(), io.String.Output("layers", display_name="layers")],
        )

    @classmethod
    def technique(
        cls,
        model: ModelPatcher,
        latent: Latent | None = None,
        conditioning: Conditioning | None = None,
        **settings: Any,
    ) -> Made:
        require_model(model)
        if latent is not None:
            require_latent("latent", latent)
        if conditioning is not None:
            require_conditioning("conditioning", conditioning)
        size = None if latent is None else fitting(model, latent)
        with mismatch_explained("latent", model, size, conditioning):
            technique = quantize(model, QuantizationSettings(**settings), conditioning, size)
        policy = technique.policy
        lines = "\n".join((policy.describe(), *policy.details(), "", policy.table()))
        return ModelTarget(model), technique, lines
