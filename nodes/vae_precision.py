"""The node VAE Precision."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from ..optimizers.hosts.comfyui.precision.vae import with_precision
from ..optimizers.hosts.comfyui.structure.protocols import VAE
from ..optimizers.hosts.comfyui.targets.vae import VAETarget
from ..optimizers.precision.settings import PrecisionSettings
from .common import Made, TechniqueNode
from .model_precision import SEARCH_ALIASES, precision_inputs


class PacelineVAEPrecision(TechniqueNode):
    """Choose what a VAE computes in."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            node_id="PacelineVAEPrecision",
            display_name="VAE Precision",
            description=(
                "Lets one VAE compute in bf16, fp16 or fp32, with channels last in memory, fp16 accumulation or TF32. "
                "The VAE before the node stays as it is."
            ),
            search_aliases=[*SEARCH_ALIASES, "VAE", "memory", "vram"],
            inputs=[io.Vae.Input("vae"), *precision_inputs()],
            outputs=[io.Vae.Output()],
        )

    @classmethod
    def technique(cls, vae: VAE, **settings: Any) -> Made:
        result, technique = with_precision(vae, PrecisionSettings(**settings))
        return VAETarget(result), technique
