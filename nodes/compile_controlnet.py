"""The node Compile ControlNet."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from ..optimizers.hosts.comfyui.compilation.comfy_env import node_compiler
from ..optimizers.hosts.comfyui.compilation.controlnet import compile_controlnet
from ..optimizers.hosts.comfyui.structure.protocols import ControlNet
from ..optimizers.hosts.comfyui.targets.controlnet import ControlNetTarget
from .common import ADVANCED, Made
from .compile_inputs import CompileNode, compile_inputs, network_settings


class PacelineCompileControlNet(CompileNode):
    """Run a ControlNet through torch.compile."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            node_id="PacelineCompileControlNet",
            display_name="Compile ControlNet",
            category=ADVANCED,
            description=(
                "Compiles the ControlNet with torch.compile: its first step takes longer, also for a new image size, "
                "and later steps take less. Disconnect the node to get the original ControlNet back."
            ),
            search_aliases=["torch.compile", "TorchCompileControlNet", "inductor", "speed", "faster"],
            inputs=[
                io.ControlNet.Input("control_net", tooltip="The ControlNet, before the node that applies it."),
                *compile_inputs(),
            ],
            outputs=[io.ControlNet.Output()],
        )

    @classmethod
    def technique(cls, control_net: ControlNet, **settings: Any) -> Made:
        how = network_settings(**settings)
        control_net, technique = compile_controlnet(control_net, how, node_compiler())
        return ControlNetTarget(control_net), technique
