"""The node Fuse QKV."""

from __future__ import annotations

from comfy_api.latest import io

from ..optimizers.in_comfyui.comfy_qkv_fusion import ModelQKVFusion
from ..optimizers.in_comfyui.structure.protocols import ModelPatcher
from ..optimizers.in_comfyui.targets.model_target import ModelTarget
from ..optimizers.models.families import family_names
from .common import ADVANCED, Made, TechniqueNode


class PacelineFuseQKV(TechniqueNode):
    """Compute query, key and value of each attention layer in one matrix multiplication."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            "Fuse QKV",
            "Computes query, key and value of each attention layer in one matrix product instead of three, "
            "without a second copy of the weights. No gain in time was measured so far, and on a processor the node "
            "does nothing. The image changes by rounding only.",
            "fused projections, fuse_qkv_projections, to_qkv, attention, speed",
            category=ADVANCED,
            inputs=[
                io.Model.Input(
                    "model",
                    tooltip="In floating point, with any LoRAs, before or after this node: "
                    f"{family_names(lambda family: family.attention)}. "
                    f"{family_names(lambda family: family.fused_by_design)} and others are fused by design.",
                )
            ],
        )

    @classmethod
    def technique(cls, model: ModelPatcher) -> Made:
        return ModelTarget(model), ModelQKVFusion(model)
