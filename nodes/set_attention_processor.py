"""The node Set Attention Processor."""

from __future__ import annotations

from comfy_api.latest import io

from ..optimizers.attention.attention_policy import TOOLTIP
from ..optimizers.attention.registry import BACKENDS
from ..optimizers.core.errors import require_choice
from ..optimizers.in_comfyui.comfy_attention import AttentionProcessor
from ..optimizers.in_comfyui.structure.protocols import ModelPatcher
from ..optimizers.in_comfyui.targets.model_target import ModelTarget
from .common import Made, TechniqueNode


class PacelineSetAttentionProcessor(TechniqueNode):
    """Choose the attention backend of one model."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            "Set Attention Processor",
            "Computes this model's attention with the backend you choose. Calls that the backend cannot take use "
            "ComfyUI's own attention and are counted; VAE, text encoders and ControlNets are not changed.",
            "attention, sdpa, xformers, flash attention, sage attention, sageattn, comfy kitchen attention, "
            "int8 attention, speed, faster",
            inputs=[
                io.Model.Input("model"),
                io.Combo.Input("backend", options=["auto", *BACKENDS], default="auto", tooltip=TOOLTIP),
            ],
        )

    @classmethod
    def technique(cls, model: ModelPatcher, backend: str) -> Made:
        require_choice("backend", backend, ("auto", *BACKENDS))
        return ModelTarget(model), AttentionProcessor(model, backend)
