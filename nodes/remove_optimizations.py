"""The node Remove Optimizations."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io
from comfy_execution.graph_utils import ExecutionBlocker

from ..core.activity import Summary
from ..core.errors import InvalidSetting
from ..optimizers.hosts.comfyui.attach import detach_all
from ..optimizers.hosts.comfyui.compat import require_host
from ..optimizers.hosts.comfyui.controlnet import detach_all_from_controlnet
from ..optimizers.hosts.comfyui.reporting import announce
from ..optimizers.hosts.comfyui.unet import require_model
from ..optimizers.hosts.comfyui.vae import detach_all_from_vae
from .common import CATEGORY, node_id


class PacelineRemoveOptimizations(io.ComfyNode):
    """Take off everything that nodes of this pack have attached to a model, VAE or ControlNet."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """Describe the inputs."""
        return io.Schema(
            node_id="PacelineRemoveOptimizations",
            display_name="Remove Optimizations",
            category=CATEGORY,
            description=(
                "Returns the model, VAE or ControlNet without anything that Paceline nodes attached to it, e.g. for a "
                "second pass at full quality. LoRAs and patches of other packs stay."
            ),
            search_aliases=["unpatch", "restore", "baseline", "remove tome", "uncompile"],
            inputs=[
                io.Model.Input("model", optional=True),
                io.Vae.Input("vae", optional=True),
                io.ControlNet.Input("control_net", optional=True),
            ],
            outputs=[io.Model.Output(), io.Vae.Output(), io.ControlNet.Output()],
            hidden=[io.Hidden.unique_id],
            not_idempotent=True,  # a cached result of another node would report to that one
        )

    @classmethod
    def execute(cls, model: Any = None, vae: Any = None, control_net: Any = None) -> io.NodeOutput:
        """Return copies of what is connected, without our techniques."""
        require_host()
        given = {"model": model, "vae": vae, "control_net": control_net}
        if all(value is None for value in given.values()):
            raise InvalidSetting("There is nothing to remove from.", "Connect a model, a vae or a control_net.")
        if model is not None:
            require_model(model)
        detachers = {"model": detach_all, "vae": detach_all_from_vae, "control_net": detach_all_from_controlnet}
        outputs, removed = [], []
        for name, value in given.items():
            if value is None:
                outputs.append(ExecutionBlocker(f"Remove Optimizations: connect its input {name} to use this output."))
            else:
                copy, techniques = detachers[name](value)
                outputs.append(copy)
                removed.extend(technique.title for technique in techniques)
        names = ", ".join(removed) or "nothing: none of ours was attached"
        announce(node_id(cls), Summary("active", f"removed {names}"))
        return io.NodeOutput(*outputs)
