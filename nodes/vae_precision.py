"""The node VAE Precision."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from ..optimizers.hosts.comfyui.compat import require_host
from ..optimizers.hosts.comfyui.precision import with_precision
from ..optimizers.hosts.comfyui.vae import stack_of_vae
from ..optimizers.precision import PrecisionSettings
from .common import CATEGORY, node_id
from .compile_inputs import announce_attached
from .model_precision import precision_inputs


class PacelineVAEPrecision(io.ComfyNode):
    """Choose what a VAE computes in."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """Describe the inputs."""
        return io.Schema(
            node_id="PacelineVAEPrecision",
            display_name="VAE Precision",
            category=CATEGORY,
            description=(
                "Lets one VAE compute in bf16, fp16 or fp32, with channels last in memory, fp16 accumulation or TF32. "
                "The VAE before the node stays as it is."
            ),
            search_aliases=["dtype", "bf16", "fp16", "fp32", "half precision", "channels_last", "VAE"],
            inputs=[io.Vae.Input("vae"), *precision_inputs()],
            outputs=[io.Vae.Output()],
            hidden=[io.Hidden.unique_id],
            not_idempotent=True,  # a cached result of another node would report to that one
        )

    @classmethod
    def execute(cls, vae: Any, **settings: Any) -> io.NodeOutput:
        """Return a copy of ``vae`` that computes as chosen."""
        require_host()
        result, technique = with_precision(vae, PrecisionSettings(**settings), node_id(cls))
        announce_attached(stack_of_vae(vae), technique)
        return io.NodeOutput(result)
