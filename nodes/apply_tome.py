"""The node Apply ToMe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from comfy_api.latest import io

from ..optimizers.families import names
from ..optimizers.hosts.comfyui.model import ModelTarget
from ..optimizers.hosts.comfyui.token_reduction import token_reduction_for
from ..optimizers.token_merging import METHODS, PRESET_NAMES, RAMPS, TokenMergingSettings, apply_preset
from .common import OptimizingNode

if TYPE_CHECKING:
    from ..optimizers.hosts.comfyui.protocols import ModelPatcher

_SHARE: Any = {"min": 0.0, "max": 1.0, "step": 0.01}
_ADVANCED_SHARE: Any = {**_SHARE, "advanced": True}


class PacelineApplyToMe(OptimizingNode):
    """Merge similar tokens before attention, so that it has fewer to look at."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """Describe the inputs; kept free of any look at the machine, as ComfyUI asks at every page load."""
        return cls.schema(
            node_id="PacelineApplyToMe",
            display_name="Apply ToMe",
            description=(
                "Merges similar image tokens before self-attention (Token Merging for Stable Diffusion, "
                "arXiv 2303.17604). Large images gain most; fine detail changes a little."
            ),
            search_aliases=["tomesd", "token merging", "tome", "TomePatchModel", "speed", "faster", "slow", "memory"],
            inputs=[
                io.Model.Input(
                    "model",
                    tooltip=f"{names(lambda family: family.unets)}; with "
                    f"{' or '.join(name for name, method in METHODS.items() if method.works_after_rope)} also "
                    f"{names(lambda family: family.tokens)}; see the help page.",
                ),
                io.Combo.Input(
                    "preset",
                    options=list(PRESET_NAMES),
                    default="custom",
                    tooltip="Ready-made values in place of method, ratio, max_downsample and level_decay. Work left in "
                    "self-attention, and distance to the original on two trained models: quality 58 %, 47.8 and 44.5 "
                    "dB; balanced 37 %, 45.4 and 39.4; fast 17 %, 39.7 and 32.9. For comparison, bf16 instead of "
                    "fp32: 42.7 and 48.7; another seed: 10.3 and 30.6. custom: the values below.",
                ),
                io.Combo.Input(
                    "method",
                    options=list(METHODS),
                    default="auto",
                    tooltip=" ".join(f"{name}: {method.help}." for name, method in METHODS.items()),
                ),
                io.Float.Input(
                    "ratio",
                    default=0.5,
                    **_SHARE,
                    tooltip="Share of the tokens that are merged away. Higher is faster, needs less memory and changes "
                    "the image more. 0 leaves it exactly as it is. Limited by sx and sy: with 2 x 2 at most 0.75.",
                ),
                io.Combo.Input(
                    "max_downsample",
                    options=["auto", "1", "2", "4", "8"],
                    default="auto",
                    tooltip="Merge in blocks whose resolution is at most this many times below the latent's. auto: the "
                    "first level that has attention (1 for SD 1.x, 2 for SDXL). Higher: more blocks, a little faster, "
                    "more change.",
                ),
                io.Int.Input(
                    "sx",
                    default=2,
                    min=1,
                    max=64,
                    advanced=True,
                    tooltip="One token in every sx by sy cell is kept for sure. Larger cells allow higher ratios.",
                ),
                io.Int.Input("sy", default=2, min=1, max=64, advanced=True, tooltip="Height of the cell, see sx."),
                io.Boolean.Input(
                    "use_rand",
                    default=True,
                    advanced=True,
                    tooltip="Choose the kept token of each cell at random, anew for each step and block: better images."
                    " Off: always the upper left one.",
                ),
                io.Int.Input(
                    "seed",
                    default=0,
                    min=0,
                    max=0xFFFFFFFF,
                    control_after_generate=False,
                    advanced=True,
                    tooltip="Seed of that choice. It has its own random sequence: your image's noise is not touched.",
                ),
                io.Boolean.Input(
                    "merge_attn", default=True, advanced=True, tooltip="Merge in self-attention (recommended)."
                ),
                io.Boolean.Input(
                    "merge_crossattn",
                    default=False,
                    advanced=True,
                    tooltip="Merge in attention to the text too. Saves little, costs prompt fidelity: for experiments.",
                ),
                io.Boolean.Input(
                    "merge_mlp",
                    default=False,
                    advanced=True,
                    tooltip="Merge in the feed-forward layers too. Saves more and costs much detail: for experiments.",
                ),
                io.Float.Input(
                    "start_percent",
                    default=0.0,
                    **_ADVANCED_SHARE,
                    tooltip="Start merging at this part of denoising. Later keeps the composition as it was.",
                ),
                io.Float.Input(
                    "end_percent",
                    default=1.0,
                    **_ADVANCED_SHARE,
                    tooltip="Stop merging at this part of denoising. Earlier keeps fine detail closer to the original.",
                ),
                io.Float.Input(
                    "level_decay",
                    default=1.0,
                    **_ADVANCED_SHARE,
                    tooltip="Factor of the ratio at each coarser level. Lower: coarse levels, which hold the meaning "
                    "of the picture, keep more of their tokens.",
                ),
                io.Int.Input(
                    "refresh_every",
                    default=1,
                    min=1,
                    max=100,
                    advanced=True,
                    tooltip="Use a matching for this many steps, and share it among the blocks of a level. 1 is "
                    "exact; higher makes the merging methods cheaper. kv_downsample needs no matching.",
                ),
                io.Combo.Input(
                    "ramp",
                    options=list(RAMPS),
                    default="none",
                    advanced=True,
                    tooltip="fade_out: half of the ratio in the second half of the steps, to keep fine detail. "
                    "fade_in: half of it in the first half, to keep the composition. Compiled models then have two "
                    "graphs.",
                ),
            ],
            outputs=[io.Model.Output()],
        )

    @classmethod
    def apply(cls, model: ModelPatcher, preset: str, max_downsample: str, **settings: Any) -> io.NodeOutput:
        """Return a clone of ``model`` that merges tokens while it samples."""
        decimal = isinstance(max_downsample, str) and max_downsample.isdecimal()
        settings["max_downsample"] = int(max_downsample) if decimal else max_downsample
        chosen = TokenMergingSettings(**apply_preset(preset, settings))
        technique = token_reduction_for(model, chosen)
        return io.NodeOutput(cls.attach(ModelTarget(model), technique))
