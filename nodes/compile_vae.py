"""The node Compile VAE."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from ..optimizers.compilation import CompileSettings
from ..optimizers.hosts.comfyui.compat import require_host
from ..optimizers.hosts.comfyui.vae import attach_to_vae, stack_of_vae
from ..optimizers.hosts.comfyui.vae_compile import CompileVAE, compilable
from .common import CATEGORY, node_id
from .compile_inputs import announce_attached, compile_inputs


class PacelineCompileVAE(io.ComfyNode):
    """Run a VAE through torch.compile."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """Describe the inputs."""
        return io.Schema(
            node_id="PacelineCompileVAE",
            display_name="Compile VAE",
            category=CATEGORY,
            description=(
                "Compiles the VAE with torch.compile. The first image takes longer, those after it less; so does the "
                "first one of another size. Disconnect the node to get the VAE back as it was."
            ),
            search_aliases=["torch.compile", "TorchCompileVAE", "inductor", "speed", "decode"],
            inputs=[
                io.Vae.Input("vae"),
                io.Boolean.Input(
                    "compile_decoder",
                    default=True,
                    tooltip="Compile decoding (latent to image), tiled too. Costs compile time at the first image.",
                ),
                io.Boolean.Input(
                    "compile_encoder",
                    default=True,
                    tooltip="Compile encoding (image to latent), tiled too. Costs nothing in a workflow that does not "
                    "encode.",
                ),
                *compile_inputs(),
            ],
            outputs=[io.Vae.Output()],
            hidden=[io.Hidden.unique_id],
            not_idempotent=True,  # a cached result of another node would report to that one
        )

    @classmethod
    def execute(
        cls, vae: Any, compile_decoder: bool, compile_encoder: bool, channels_last: bool = False, **settings: Any
    ) -> io.NodeOutput:
        """Return a copy of ``vae`` that runs compiled."""
        require_host()
        chosen = CompileSettings(**settings)
        vae, notes = compilable(vae)
        technique = CompileVAE(vae, chosen, compile_encoder, compile_decoder, channels_last, notes, node_id(cls))
        announce_attached(stack_of_vae(vae), technique)
        return io.NodeOutput(attach_to_vae(vae, technique))
