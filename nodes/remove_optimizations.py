"""The node Remove Optimizations."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from ..optimizers.activity import Summary
from ..optimizers.hosts.comfyui.attach import detach_all
from ..optimizers.hosts.comfyui.compat import require_host
from ..optimizers.hosts.comfyui.reporting import announce
from ..optimizers.hosts.comfyui.unet import require_model
from .common import CATEGORY, node_id


class PacelineRemoveOptimizations(io.ComfyNode):
    """Take off everything that nodes of this pack have attached to a model."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """Describe the inputs."""
        return io.Schema(
            node_id="PacelineRemoveOptimizations",
            display_name="Remove Optimizations",
            category=CATEGORY,
            description=(
                "Returns the model without anything that Paceline nodes attached to it, e.g. for a second pass at "
                "full quality. LoRAs and patches of other packs stay."
            ),
            search_aliases=["unpatch", "restore", "baseline", "remove tome"],
            inputs=[io.Model.Input("model")],
            outputs=[io.Model.Output()],
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def execute(cls, model: Any) -> io.NodeOutput:
        """Return a clone of ``model`` without our techniques."""
        require_host()
        require_model(model)
        clone, removed = detach_all(model)
        names = ", ".join(technique.title for technique in removed) or "nothing: none of ours was attached"
        announce(node_id(cls), Summary("active", f"removed {names}"))
        return io.NodeOutput(clone)
