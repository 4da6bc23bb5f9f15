"""The node Compile UNet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from comfy_api.latest import io

from ..optimizers.compilation.settings import MODES, SCOPES, NetworkSettings
from ..optimizers.hosts.comfyui.compilation.comfy_env import node_compiler
from ..optimizers.hosts.comfyui.compilation.unet import CompileUNet, compilable
from ..optimizers.hosts.comfyui.model import ModelTarget
from .common import Made
from .compile_inputs import CompileNode, compile_inputs, network_settings

if TYPE_CHECKING:
    from ..optimizers.hosts.comfyui.protocols import ModelPatcher

_TOOLTIPS = {
    "mode": "default: compiles soonest. max-autotune-no-cudagraphs: tries out kernels, compiles for minutes, may run "
    "faster. reduce-overhead, max-autotune: with torch's CUDA graphs, more memory. cuda-graph: records each step once "
    "and replays it (experimental). The last three: NVIDIA only.",
    "preset": "diffusion-fast: that recipe's inductor options, for this model only (conv_1x1_as_mm, coordinate descent "
    "tuning, no epilogue fusion). Compiles longer; for GPUs.",
    "dynamic": "auto: compiled for the image size it sees, and once more for any size when that changes. true: for any "
    "size at once, a little slower. false: anew for each size and prompt length.",
    "fullgraph": "Fail where the model cannot be compiled in one piece, instead of running parts of it as before. The "
    "report counts such places either way.",
    "channels_last": "Hand the latent over with its channels last in memory. Can be faster or slower on your device; "
    "same memory, differences in the image are rounding. Undone with the node.",
    "recompile_limit": "How many variants may be compiled (image sizes, sets of patches). After that, what needs a new "
    "one runs uncompiled; the report says when few are left. Each takes some memory.",
}
_SCOPE = io.Combo.Input(
    "scope",
    options=list(SCOPES),
    default=NetworkSettings.scope,
    tooltip="whole_model: fastest steps. repeated_blocks: compiles one block of each kind for all of its repetitions, "
    "so the first step comes much sooner; steps are a little slower. Not with patches (Apply ToMe, ...): those calls "
    "run uncompiled.",
)


class PacelineCompileUNet(CompileNode):
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
                *compile_inputs(MODES, (_SCOPE,), _TOOLTIPS),
            ],
            outputs=[io.Model.Output()],
        )

    @classmethod
    def technique(cls, model: ModelPatcher, **settings: Any) -> Made:
        how = network_settings(**settings)
        clone, notes = compilable(model)
        technique = CompileUNet(clone, how, node_compiler(), notes)
        return ModelTarget(clone), technique
