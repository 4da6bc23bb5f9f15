"""The node Apply ToMe."""

from __future__ import annotations

from functools import partial
from typing import Any

from comfy_api.latest import io

from ..optimizers.in_comfyui.comfy_token_merging import ComfyTokenMerging
from ..optimizers.in_comfyui.structure.protocols import ModelPatcher
from ..optimizers.in_comfyui.targets.model_target import ModelTarget
from ..optimizers.token_merging.tome_settings import (
    PRESET_NAMES,
    TOOLTIPS,
    TokenMergingSettings,
    apply_preset,
    level_of,
)
from .common import Made, TechniqueNode, setting_input

_IGNORED: dict[str, Any] = {"tooltip": "Ignored. It is there so that older workflows load.", "advanced": True}


class PacelineApplyToMe(TechniqueNode):
    """Merge similar tokens before attention, so that it has fewer to look at."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        setting = partial(setting_input, TokenMergingSettings)
        return cls.schema(
            "Apply ToMe",
            "Gives attention fewer image tokens: similar tokens are merged (Token Merging, arXiv 2303.17604), or keys "
            "and values are left out. Large images gain most; on the card that was measured (H200) none gained. Fine "
            "detail changes a little.",
            "tomesd, token merging, tome, TomePatchModel, speed, faster, slow, memory",
            inputs=[
                io.Model.Input("model", tooltip="A model with a UNet: SD 1.x, SD 2.x, SDXL, SVD."),
                io.Combo.Input(
                    "preset",
                    options=list(PRESET_NAMES),
                    default="custom",
                    tooltip="quality: ready-made values for method, ratio, max_downsample and residual, which "
                    "change the image little. custom: the values below.",
                ),
                setting("method", TOOLTIPS["method"]),
                setting("ratio", TOOLTIPS["ratio"]),
                setting("max_downsample", TOOLTIPS["max_downsample"]),
                setting(
                    "sx",
                    "Width of the cells of which one token each is always kept. Larger cells allow higher ratios.",
                    advanced=True,
                ),
                setting("sy", "Height of the cells, see sx.", advanced=True),
                setting(
                    "use_rand",
                    "Choose the kept token of each cell at random, anew for each step and block. Off: always the "
                    "upper left token.",
                    advanced=True,
                ),
                io.Int.Input("seed", default=0, min=0, max=0xFFFFFFFF, control_after_generate=False, **_IGNORED),
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
                io.Float.Input("start_percent", default=0.0, min=0.0, max=1.0, step=0.01, **_IGNORED),
                io.Float.Input("end_percent", default=1.0, min=0.0, max=1.0, step=0.01, **_IGNORED),
                setting("residual", TOOLTIPS["residual"]),
            ],
        )

    @classmethod
    def technique(
        cls,
        model: ModelPatcher,
        preset: str,
        max_downsample: str,
        seed: int = 0,
        start_percent: float = 0.0,
        end_percent: float = 1.0,
        **settings: Any,
    ) -> Made:
        settings["max_downsample"] = level_of(max_downsample)
        technique = ComfyTokenMerging(model, TokenMergingSettings(**apply_preset(preset, settings)))
        if (seed, start_percent, end_percent) != (0, 0.0, 1.0):
            technique.policy.notes = ("seed, start_percent and end_percent of the workflow are ignored",)
        return ModelTarget(model), technique
