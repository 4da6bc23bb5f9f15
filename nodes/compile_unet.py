"""The node Compile UNet."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from ..optimizers.compilation import BACKENDS, DYNAMIC, MODES, ON_ERROR, PRESETS, CompileSettings
from ..optimizers.hosts.comfyui.compilation import SCOPES, CompileUNet, NetworkSettings, compilable
from ..optimizers.hosts.comfyui.model import ModelTarget
from .common import PacelineNode


class PacelineCompileUNet(PacelineNode):
    """Run a diffusion model through torch.compile."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """Describe the inputs; kept free of any look at the machine, as ComfyUI asks at every page load."""
        return cls.schema(
            node_id="PacelineCompileUNet",
            display_name="Compile UNet",
            description=(
                "Compiles the diffusion model with torch.compile. The first step takes longer, once; the ones after "
                "it take less. Goes with LoRA, ControlNet, Apply ToMe and other patches, in any order."
            ),
            search_aliases=["torch.compile", "TorchCompileModel", "inductor", "max-autotune", "cuda graph", "speed"],
            inputs=[
                io.Model.Input("model", tooltip="Any diffusion model, before or after other nodes that change it."),
                io.Combo.Input(
                    "backend",
                    options=list(BACKENDS),
                    default="inductor",
                    tooltip="inductor: generates code for this device. aot_eager, eager: only trace, no faster; to "
                    "find out what goes wrong.",
                ),
                io.Combo.Input(
                    "mode",
                    options=list(MODES),
                    default="default",
                    tooltip="default: compiles soonest. max-autotune-no-cudagraphs: tries out kernels, compiles for "
                    "minutes, may run faster. reduce-overhead, max-autotune: with torch's CUDA graphs, more memory. "
                    "cuda-graph: records each step once and replays it (experimental). The last three: NVIDIA only.",
                ),
                io.Combo.Input(
                    "scope",
                    options=list(SCOPES),
                    default="whole_model",
                    tooltip="whole_model: fastest steps. repeated_blocks: compiles one block of each kind for all of "
                    "its repetitions, so the first step comes much sooner; steps are a little slower. Not with "
                    "patches (Apply ToMe, ...): those calls run uncompiled.",
                ),
                io.Combo.Input(
                    "preset",
                    options=list(PRESETS),
                    default="none",
                    advanced=True,
                    tooltip="diffusion-fast: that recipe's inductor options, for this model only (conv_1x1_as_mm, "
                    "coordinate descent tuning, no epilogue fusion). Compiles longer; for GPUs.",
                ),
                io.Combo.Input(
                    "dynamic",
                    options=list(DYNAMIC),
                    default="auto",
                    advanced=True,
                    tooltip="auto: compiled for the image size it sees, and once more for any size when that changes. "
                    "true: for any size at once, a little slower. false: anew for each size and prompt length.",
                ),
                io.Boolean.Input(
                    "fullgraph",
                    default=False,
                    advanced=True,
                    tooltip="Fail where the model cannot be compiled in one piece, instead of running parts of it as "
                    "before. The report counts such places either way.",
                ),
                io.Boolean.Input(
                    "channels_last",
                    default=False,
                    advanced=True,
                    tooltip="Hand the latent over with its channels last in memory. Can be faster or slower on your "
                    "device; same memory, differences in the image are rounding. Undone with the node.",
                ),
                io.Int.Input(
                    "recompile_limit",
                    default=32,
                    min=1,
                    max=1000,
                    advanced=True,
                    tooltip="How many variants may be compiled (image sizes, sets of patches). After that, what needs "
                    "a new one runs uncompiled; the report says when few are left. Each takes some memory.",
                ),
                io.Combo.Input(
                    "on_error",
                    options=list(ON_ERROR),
                    default="fallback",
                    advanced=True,
                    tooltip="fallback: if compiling fails, run as without the node, and say why. raise: stop with the "
                    "reason.",
                ),
            ],
            outputs=[io.Model.Output()],
        )

    @classmethod
    def execute(
        cls, model: Any, scope: str = "whole_model", channels_last: bool = False, **settings: Any
    ) -> io.NodeOutput:
        """Return a clone of ``model`` that runs compiled while it samples."""
        chosen = NetworkSettings(CompileSettings(**settings), scope, channels_last)
        clone, notes = compilable(model)
        technique = CompileUNet(clone, chosen, notes, cls.node_id())
        return io.NodeOutput(cls.attach(ModelTarget(clone), technique))
