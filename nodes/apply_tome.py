"""The node Apply ToMe."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from ..optimizers.hosts.comfyui.compat import require_host
from ..optimizers.hosts.comfyui.token_merging import UNetTokenMerging
from ..optimizers.token_merging import TokenMergingSettings
from .common import CATEGORY, attach_and_announce, node_id


class PacelineApplyToMe(io.ComfyNode):
    """Merge similar tokens before attention, so that it has fewer to look at."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """Describe the inputs; kept free of any look at the machine, as ComfyUI asks at every page load."""
        return io.Schema(
            node_id="PacelineApplyToMe",
            display_name="Apply ToMe",
            category=CATEGORY,
            description=(
                "Merges similar image tokens before self-attention (Token Merging for Stable Diffusion, "
                "arXiv 2303.17604). Large images gain most; fine detail changes a little."
            ),
            search_aliases=["tomesd", "token merging", "tome", "TomePatchModel", "speed"],
            inputs=[
                io.Model.Input("model", tooltip="A UNet model: SD 1.x, SD 2.x, SDXL and their relatives."),
                io.Float.Input(
                    "ratio",
                    default=0.5,
                    min=0.0,
                    max=1.0,
                    step=0.01,
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
                    min=0.0,
                    max=1.0,
                    step=0.01,
                    advanced=True,
                    tooltip="Start merging at this part of denoising. Later keeps the composition as it was.",
                ),
                io.Float.Input(
                    "end_percent",
                    default=1.0,
                    min=0.0,
                    max=1.0,
                    step=0.01,
                    advanced=True,
                    tooltip="Stop merging at this part of denoising. Earlier keeps fine detail closer to the original.",
                ),
            ],
            outputs=[io.Model.Output()],
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def execute(cls, model: Any, max_downsample: str, **settings: Any) -> io.NodeOutput:
        """Return a clone of ``model`` that merges tokens while it samples."""
        require_host()
        settings["max_downsample"] = int(max_downsample) if max_downsample.isdecimal() else max_downsample
        technique = UNetTokenMerging(model, TokenMergingSettings(**settings), node_id(cls))
        return io.NodeOutput(attach_and_announce(model, technique))
