"""The node Compile UNet."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from ..optimizers.compilation.settings import NetworkSettings
from ..optimizers.hosts.comfyui.compilation.comfy_env import node_compiler
from ..optimizers.hosts.comfyui.compilation.unet import CompileUNet, compilable
from ..optimizers.hosts.comfyui.structure.protocols import ModelPatcher
from ..optimizers.hosts.comfyui.targets.model import ModelTarget
from .common import Made, setting_input
from .compile_inputs import CompileNode, compile_inputs, network_settings

_SCOPE = setting_input(
    NetworkSettings,
    "scope",
    "auto: whole_model, or repeated_blocks where torch cannot trace the whole network in one piece (MiniMax H3, LTX, "
    "...). repeated_blocks compiles one block of each kind: the first step comes much sooner, later ones are a little "
    "slower.",
    advanced=True,
)


class PacelineCompileUNet(CompileNode):
    """Run a diffusion model through torch.compile."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            node_id="PacelineCompileUNet",
            display_name="Compile UNet",
            description=(
                "Compiles the diffusion model with torch.compile: the first step takes longer, later ones take less. "
                "Works with LoRA, ControlNet, Apply ToMe and other patches, in any order."
            ),
            search_aliases=[
                "torch.compile",
                "TorchCompileModel",
                "inductor",
                "max-autotune",
                "cuda graph",
                "speed",
                "faster",
            ],
            inputs=[
                io.Model.Input("model", tooltip="Any diffusion model, before or after other nodes that change it."),
                *compile_inputs(_SCOPE),
            ],
            outputs=[io.Model.Output()],
        )

    @classmethod
    def technique(cls, model: ModelPatcher, **settings: Any) -> Made:
        how = network_settings(**settings)
        clone, notes = compilable(model)
        return ModelTarget(clone), CompileUNet(clone, how, node_compiler(), notes)
