"""The node Apply ToMe."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from comfy_api.latest import io

from ..optimizers.families import names
from ..optimizers.hosts.comfyui.model import ModelTarget
from ..optimizers.hosts.comfyui.token_merging import token_merging_for
from ..optimizers.token_merging import METHODS, PRESET_NAMES, TokenMergingSettings, apply_preset
from .common import Made, TechniqueNode
from .inputs import setting_input

if TYPE_CHECKING:
    from ..optimizers.hosts.comfyui.protocols import ModelPatcher


class PacelineApplyToMe(TechniqueNode):
    """Merge similar tokens before attention, so that it has fewer to look at."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """Describe the inputs; kept free of any look at the machine, as ComfyUI asks at every page load."""
        setting = partial(setting_input, TokenMergingSettings)
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
                setting("method", " ".join(f"{name}: {method.help}." for name, method in METHODS.items())),
                setting(
                    "ratio",
                    "Share of the tokens that are merged away. Higher is faster, needs less memory and changes "
                    "the image more. 0 leaves it exactly as it is. Limited by sx and sy: with 2 x 2 at most 0.75.",
                ),
                setting(
                    "max_downsample",
                    "Merge in blocks whose resolution is at most this many times below the latent's. auto: the "
                    "first level that has attention (1 for SD 1.x, 2 for SDXL). Higher: more blocks, a little faster, "
                    "more change.",
                ),
                setting(
                    "sx",
                    "One token in every sx by sy cell is kept for sure. Larger cells allow higher ratios.",
                    advanced=True,
                ),
                setting("sy", "Height of the cell, see sx.", advanced=True),
                setting(
                    "use_rand",
                    "Choose the kept token of each cell at random, anew for each step and block: better images."
                    " Off: always the upper left one.",
                    advanced=True,
                ),
                setting(
                    "seed",
                    "Seed of that choice. It has its own random sequence: your image's noise is not touched.",
                    max=0xFFFFFFFF,
                    control_after_generate=False,
                    advanced=True,
                ),
                setting("merge_attn", "Merge in self-attention (recommended).", advanced=True),
                setting(
                    "merge_crossattn",
                    "Merge in attention to the text too. Saves little, costs prompt fidelity: for experiments.",
                    advanced=True,
                ),
                setting(
                    "merge_mlp",
                    "Merge in the feed-forward layers too. Saves more and costs much detail: for experiments.",
                    advanced=True,
                ),
                setting(
                    "start_percent",
                    "Start merging at this part of denoising. Later keeps the composition as it was.",
                    advanced=True,
                ),
                setting(
                    "end_percent",
                    "Stop merging at this part of denoising. Earlier keeps fine detail closer to the original.",
                    advanced=True,
                ),
                setting(
                    "level_decay",
                    "Factor of the ratio at each coarser level. Lower: coarse levels, which hold the meaning "
                    "of the picture, keep more of their tokens.",
                    advanced=True,
                ),
                setting(
                    "refresh_every",
                    "Use a matching for this many steps, and share it among the blocks of a level. 1 is "
                    "exact; higher makes the merging methods cheaper. kv_downsample needs no matching.",
                    advanced=True,
                ),
                setting(
                    "ramp",
                    "fade_out: half of the ratio in the second half of the steps, to keep fine detail. "
                    "fade_in: half of it in the first half, to keep the composition. Compiled models then have two "
                    "graphs.",
                    advanced=True,
                ),
            ],
            outputs=[io.Model.Output()],
        )

    @classmethod
    def technique(cls, model: ModelPatcher, preset: str, max_downsample: str, **settings: Any) -> Made:
        decimal = isinstance(max_downsample, str) and max_downsample.isdecimal()
        settings["max_downsample"] = int(max_downsample) if decimal else max_downsample
        chosen = TokenMergingSettings(**apply_preset(preset, settings))
        return ModelTarget(model), token_merging_for(model, chosen)
