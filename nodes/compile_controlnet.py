"""The node Compile ControlNet."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from ..optimizers.compilation import CompileSettings
from ..optimizers.hosts.comfyui.compat import require_host
from ..optimizers.hosts.comfyui.controlnet import attach_to_controlnet, stack_of_controlnet
from ..optimizers.hosts.comfyui.controlnet_compile import CompileControlNet, compilable
from .common import CATEGORY, node_id
from .compile_inputs import announce_attached, compile_inputs


class PacelineCompileControlNet(io.ComfyNode):
    """Run a ControlNet through torch.compile."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """Describe the inputs."""
        return io.Schema(
            node_id="PacelineCompileControlNet",
            display_name="Compile ControlNet",
            category=CATEGORY,
            description=(
                "Compiles the ControlNet with torch.compile. Its first step takes longer, those after it less; so "
                "does the first step of another image size. Disconnect the node to get the ControlNet back as it was."
            ),
            search_aliases=["torch.compile", "TorchCompileControlNet", "inductor", "speed"],
            inputs=[
                io.ControlNet.Input("control_net", tooltip="Goes before the node that applies the ControlNet."),
                *compile_inputs(),
            ],
            outputs=[io.ControlNet.Output()],
            hidden=[io.Hidden.unique_id],
            not_idempotent=True,  # a cached result of another node would report to that one
        )

    @classmethod
    def execute(cls, control_net: Any, channels_last: bool = False, **settings: Any) -> io.NodeOutput:
        """Return a copy of ``control_net`` that runs compiled."""
        require_host()
        chosen = CompileSettings(**settings)
        control_net, notes = compilable(control_net)
        technique = CompileControlNet(control_net, chosen, channels_last, notes, node_id(cls))
        announce_attached(stack_of_controlnet(control_net), technique)
        return io.NodeOutput(attach_to_controlnet(control_net, technique))
