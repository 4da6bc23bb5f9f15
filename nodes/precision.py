"""The nodes Model Precision and VAE Precision."""

from __future__ import annotations

from functools import partial
from typing import Any

from comfy_api.latest import io

from ..optimizers.in_comfyui.comfy_precision import model_precision, with_precision
from ..optimizers.in_comfyui.structure.protocols import VAE, ModelPatcher
from ..optimizers.in_comfyui.targets.model_target import ModelTarget
from ..optimizers.in_comfyui.targets.vae_target import VAETarget
from ..optimizers.precision_policy import PrecisionSettings
from .common import Made, TechniqueNode, setting_input

_SEARCH = "dtype, bf16, fp16, fp32, half precision, channels_last"


class PacelineModelPrecision(TechniqueNode):
    """Choose what a model computes in."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            "Model Precision",
            "Lets one model compute in bf16, fp16 or fp32, with channels last, fp16 accumulation or TF32. "
            "Other models, and this one before the node, stay as they are.",
            f"{_SEARCH}, TF32, memory, vram, speed",
            inputs=[io.Model.Input("model"), *_precision_inputs()],
        )

    @classmethod
    def technique(cls, model: ModelPatcher, **settings: Any) -> Made:
        technique = model_precision(model, PrecisionSettings(**settings))
        return ModelTarget(model), technique


class PacelineVAEPrecision(TechniqueNode):
    """Choose what a VAE computes in."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            "VAE Precision",
            "Lets one VAE compute in bf16, fp16 or fp32, with channels last in memory, fp16 accumulation or TF32. "
            "The VAE before the node stays as it is.",
            f"{_SEARCH}, VAE, memory, vram",
            inputs=[io.Vae.Input("vae"), *_precision_inputs()],
        )

    @classmethod
    def technique(cls, vae: VAE, **settings: Any) -> Made:
        result, technique = with_precision(vae, PrecisionSettings(**settings))
        return VAETarget(result), technique


def _precision_inputs() -> list[io.Input]:
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
