"""The node Fuse QKV."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from ..optimizers.families import names
from ..optimizers.hosts.comfyui.compat import require_host
from ..optimizers.hosts.comfyui.qkv_fusion import FuseQKV
from .common import CATEGORY, attach_and_announce, node_id


class PacelineFuseQKV(io.ComfyNode):
    """Compute query, key and value of each attention layer in one matrix multiplication."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """Describe the inputs."""
        return io.Schema(
            node_id="PacelineFuseQKV",
            display_name="Fuse QKV",
            category=CATEGORY,
            description=(
                "Computes query, key and value of each attention layer in one matrix multiplication instead of three. "
                "The image stays the same but for rounding, and no memory is needed for more weights. The gain is "
                "small: see the help page for what was measured."
            ),
            search_aliases=["fused projections", "fuse_qkv_projections", "to_qkv", "attention", "speed"],
            inputs=[
                io.Model.Input(
                    "model",
                    tooltip=f"{names(lambda family: family.attention)}, in any precision and with any LoRAs, before or "
                    f"after this node. {names(lambda family: family.fused_by_design)} and others are fused by design.",
                ),
            ],
            outputs=[io.Model.Output()],
            hidden=[io.Hidden.unique_id],
            not_idempotent=True,  # a cached result of another node would report to that one
        )

    @classmethod
    def execute(cls, model: Any) -> io.NodeOutput:
        """Return a clone of ``model`` whose projections are fused while it samples."""
        require_host()
        return io.NodeOutput(attach_and_announce(model, FuseQKV(model, node_id(cls))))
