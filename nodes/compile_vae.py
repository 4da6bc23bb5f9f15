"""The node Compile VAE."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from ..optimizers.hosts.comfyui.compilation.comfy_env import node_compiler
from ..optimizers.hosts.comfyui.compilation.vae import compile_vae
from ..optimizers.hosts.comfyui.structure.protocols import VAE
from ..optimizers.hosts.comfyui.targets.vae import VAETarget
from .common import Made
from .compile_inputs import CompileNode, compile_inputs, network_settings


class PacelineCompileVAE(CompileNode):
    """Run a VAE through torch.compile."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            node_id="PacelineCompileVAE",
            display_name="Compile VAE",
            description=(
                "Compiles the VAE with torch.compile: the first image takes longer, also for a new size, and later "
                "ones take less. Disconnect the node to get the original VAE back."
            ),
            search_aliases=["torch.compile", "TorchCompileVAE", "inductor", "speed", "faster", "decode"],
            inputs=[
                io.Vae.Input("vae"),
                io.Boolean.Input(
                    "compile_decoder",
                    default=True,
                    tooltip="Compile decoding (latent to image), also in tiles. The first image takes longer.",
                ),
                io.Boolean.Input(
                    "compile_encoder",
                    default=True,
                    tooltip="Compile encoding (image to latent), also in tiles. Costs nothing in a workflow that "
                    "never encodes.",
                ),
                *compile_inputs(),
            ],
            outputs=[io.Vae.Output()],
        )

    @classmethod
    def technique(cls, vae: VAE, compile_decoder: bool, compile_encoder: bool, **settings: Any) -> Made:
        how = network_settings(**settings)
        vae, technique = compile_vae(vae, how, node_compiler(), compile_encoder, compile_decoder)
        return VAETarget(vae), technique
