"""The nodes Compile UNet, Compile VAE and Compile ControlNet."""

from __future__ import annotations

from functools import partial
from typing import Any

from comfy_api.latest import io

from ..optimizers.compilation.compile_settings import BACKENDS, NetworkSettings
from ..optimizers.core.errors import require_choice
from ..optimizers.in_comfyui.compilation.comfy_env import node_compiler
from ..optimizers.in_comfyui.compilation.compile_controlnet import compile_controlnet
from ..optimizers.in_comfyui.compilation.compile_unet import CompileUNet, compilable
from ..optimizers.in_comfyui.compilation.compile_vae import compile_vae
from ..optimizers.in_comfyui.structure.protocols import VAE, ControlNet, ModelPatcher
from ..optimizers.in_comfyui.targets.controlnet_target import ControlNetTarget
from ..optimizers.in_comfyui.targets.model_target import ModelTarget
from ..optimizers.in_comfyui.targets.vae_target import VAETarget
from .common import ADVANCED, Made, TechniqueNode, setting_input

_setting = partial(setting_input, NetworkSettings)

_SCOPE = _setting(
    "scope",
    "auto: repeated_blocks where the model repeats blocks, else whole_model. repeated_blocks compiles one block of "
    "each kind: the first image comes after seconds. whole_model takes minutes; each step may be a little faster.",
    advanced=True,
)


class _CompileNode(TechniqueNode):
    stays_strict = True


class PacelineCompileUNet(_CompileNode):
    """Run a diffusion model through torch.compile."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            "Compile UNet",
            "Compiles the diffusion model with torch.compile: the first step takes longer, later steps take less. "
            "Works with LoRA, ControlNet, Apply ToMe and other patches, in any order.",
            "torch.compile, TorchCompileModel, inductor, max-autotune, cuda graph, speed, faster",
            inputs=[
                io.Model.Input("model", tooltip="Any diffusion model, before or after other nodes that change it."),
                *_compile_inputs(_SCOPE),
            ],
        )

    @classmethod
    def technique(cls, model: ModelPatcher, **settings: Any) -> Made:
        how = _network_settings(**settings)
        clone, notes = compilable(model)
        return ModelTarget(clone), CompileUNet(clone, how, node_compiler(), notes)


class PacelineCompileVAE(_CompileNode):
    """Run a VAE through torch.compile."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        decoder = "Compile decoding (latent to image), also in tiles. The first image takes longer."
        encoder = "Compile encoding (image to latent), also in tiles. Costs nothing in a workflow that never encodes."
        return cls.schema(
            "Compile VAE",
            "Compiles the VAE with torch.compile: the first image takes longer, also for a new size, and later "
            "images take less. Disconnect the node to get the original VAE back.",
            "torch.compile, TorchCompileVAE, inductor, speed, faster, decode",
            inputs=[
                io.Vae.Input("vae"),
                io.Boolean.Input("compile_decoder", default=True, tooltip=decoder),
                io.Boolean.Input("compile_encoder", default=True, tooltip=encoder),
                *_compile_inputs(),
            ],
        )

    @classmethod
    def technique(cls, vae: VAE, compile_decoder: bool, compile_encoder: bool, **settings: Any) -> Made:
        how = _network_settings(**settings)
        vae, technique = compile_vae(vae, how, node_compiler(), compile_encoder, compile_decoder)
        return VAETarget(vae), technique


class PacelineCompileControlNet(_CompileNode):
    """Run a ControlNet through torch.compile."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            "Compile ControlNet",
            "Compiles the ControlNet with torch.compile: its first step takes longer, also for a new image size, "
            "and later steps take less. Disconnect the node to get the original ControlNet back.",
            "torch.compile, TorchCompileControlNet, inductor, speed, faster",
            inputs=[
                io.ControlNet.Input("control_net", tooltip="The ControlNet, before the node that applies it."),
                *_compile_inputs(),
            ],
            category=ADVANCED,
        )

    @classmethod
    def technique(cls, control_net: ControlNet, **settings: Any) -> Made:
        how = _network_settings(**settings)
        control_net, technique = compile_controlnet(control_net, how, node_compiler())
        return ControlNetTarget(control_net), technique


def _network_settings(**settings: Any) -> NetworkSettings:
    """Return how to compile, from the values of the inputs; `InvalidSetting` if one is not allowed."""
    backend = settings.get("backend", NetworkSettings.backend)
    if backend not in BACKENDS:
        from torch._dynamo import list_backends  # takes a second, and only who calls the API asks for others

        require_choice("backend", backend, tuple(list_backends(exclude_tags=())))
    return NetworkSettings(**settings)


def _compile_inputs(*further: io.Input) -> list[io.Input]:
    """Return the inputs that say how to compile; ``further`` ones of a node stand behind ``mode``."""
    return [
        io.Combo.Input(
            "backend",
            options=list(BACKENDS),
            default=NetworkSettings.backend,
            advanced=True,
            tooltip="inductor: generates code for this device. aot_eager, eager: trace only, without a gain in "
            "speed, to find the cause of a problem.",
        ),
        _setting(
            "mode",
            "default: compiles fastest; max-autotune-no-cudagraphs: tries out kernels for minutes and may run faster. "
            "reduce-overhead, max-autotune: use CUDA graphs and more memory, NVIDIA only.",
        ),
        *further,
        _setting(
            "preset",
            "diffusion-fast: inductor options of Hugging Face's recipe of that name, for this network only. Compiles "
            "longer. For GPUs.",
            advanced=True,
        ),
        _setting(
            "dynamic",
            "auto: compiled for the first size, and once more for all sizes when it changes. true: for all sizes at "
            "once, a little slower; false: for each size and prompt length separately.",
            advanced=True,
        ),
        _setting(
            "fullgraph",
            "Fail where the network cannot be compiled as one graph. Off: such places run uncompiled, and the report "
            "counts them.",
            advanced=True,
        ),
        _setting(
            "channels_last",
            "Store images with their channels last in memory. Faster or slower, depending on the device; the image "
            "changes by rounding only.",
            advanced=True,
        ),
        _setting(
            "recompile_limit",
            "How many variants (sizes, batches, sets of patches) may be compiled; each takes some memory. Beyond that, "
            "new variants run uncompiled.",
            advanced=True,
        ),
    ]
