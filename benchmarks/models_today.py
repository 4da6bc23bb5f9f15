"""How large a part of a step attention is in the models that people run today, counted.

    python benchmarks/models_today.py [--quick] [--json PATH] [--threads N] [--only wan ltx2 ...]

Each model is ComfyUI's own class with random weights and one block of each kind, at the size of picture or video in
ComfyUI's own template, with a quarter of the width and of the tokens: attention's share of a step stays what it is, and
a step costs a 64th. Operations are counted while the class runs, those of a block as often as the real model has it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from shared.measuring import arguments
from shared.record import Row, collected, report
from shared.roof import counting

# isort: split
from comfy_host import transformers
from comfy_host.in_process import bootstrap, sample

WIDTHS = {
    "dim", "ffn_dim", "hidden_size", "ffn_hidden_size", "features", "model_channels", "num_heads", "n_heads",
    "n_kv_heads", "heads", "kvheads", "num_attention_heads", "cross_attention_dim", "audio_num_attention_heads",
    "audio_cross_attention_dim", "adaln_lora_dim",
}  # fmt: skip
"""Settings of which a quarter makes a quarter of the width; the size of a head stays."""


@dataclass(frozen=True)
class Model:
    """One of them.

    Attributes:
        name: with the size of its picture or video in the template.
        kind: of ``comfy_host.transformers``.
        grid: frames, rows and columns of its tokens.
        blocks: how many the real model has, by the network's name for them.
        sizes: of the network.
        quarter: what a quarter of the width needs changed besides.
        text: its tokens.
        sound: of its latent; the longest axis is time.
    """

    name: str
    kind: str
    grid: tuple[int, int, int]
    blocks: Mapping[str, int]
    sizes: Mapping[str, Any]
    quarter: Mapping[str, Any] = field(default_factory=dict)
    text: int = 512
    sound: tuple[int, ...] = ()


H3 = {
    "hidden_size": 5376, "num_attention_heads": 56, "attention_head_dim": 128, "ffn_hidden_size": 14336,
    "num_layers": 1, "rope_inv_freq_len": 16,
}  # fmt: skip
LTX2 = {
    "num_attention_heads": 32, "attention_head_dim": 128, "cross_attention_dim": 4096, "num_layers": 1,
    "audio_num_attention_heads": 32, "audio_attention_head_dim": 64, "audio_cross_attention_dim": 2048,
}  # fmt: skip
KREA2 = {"features": 6144, "heads": 48, "kvheads": 12, "tdim": 256, "layers": 1}
ANIMA = {"model_channels": 2048, "num_heads": 16, "adaln_lora_dim": 256, "num_blocks": 1}
WAN = {"dim": 5120, "ffn_dim": 13824, "num_heads": 40, "freq_dim": 256, "num_layers": 1}
Z_IMAGE = {
    "dim": 3840, "n_heads": 30, "n_kv_heads": 30, "axes_dims": [32, 48, 48], "multiple_of": 256,
    "ffn_dim_multiplier": 8 / 3, "n_layers": 1,
}  # fmt: skip
HEADS_OF_120 = {"n_heads": 8, "n_kv_heads": 8, "axes_dims": [24, 48, 48]}
QWEN = {"num_attention_heads": 24, "attention_head_dim": 128, "axes_dims_rope": (16, 56, 56), "num_layers": 1}
QWEN21 = QWEN | {"num_attention_heads": 32}
HUNYUAN = {"hidden_size": 3072, "num_heads": 24, "mlp_ratio": 4.0, "axes_dim": [16, 56, 56]}
HUNYUAN |= {"depth": 1, "depth_single_blocks": 1}
HUNYUAN_15 = HUNYUAN | {"hidden_size": 2048, "num_heads": 16, "depth_single_blocks": 0}
FLUX2 = HUNYUAN | {"hidden_size": 6144, "num_heads": 48, "mlp_ratio": 3.0, "axes_dim": [32] * 4}
SOUND = (32, 2, 207)
SQUARE = (1, 64, 64)
LAYERS, JOINT = "transformer_blocks", ("double_blocks", "single_blocks")
MODELS = {
    "minimax_h3": Model("MiniMax H3, 864 x 480, 124 frames", "minimax_h3", (37, 15, 27), {"blocks": 50}, H3,
                        sound=SOUND),
    "minimax_h3_768": Model("MiniMax H3, 1344 x 768, 124 frames, the node's own size", "minimax_h3", (37, 24, 42),
                            {"blocks": 50}, H3, sound=SOUND),
    "ltx2": Model("LTX-2.3, 1280 x 704, 121 frames, second stage", "ltx2", (16, 22, 40), {LAYERS: 48}, LTX2,
                  sound=(8, 126, 16)),
    "krea2": Model("Krea 2, 1024 x 1024", "krea2", SQUARE, {"blocks": 28}, KREA2),
    "mage_flow": Model("Mage-Flow, 1024 x 1024", "mage_flow", SQUARE, {LAYERS: 12}, QWEN),
    "anima": Model("Anima, 1024 x 1024", "anima", SQUARE, {"blocks": 28}, ANIMA),
    "wan": Model("Wan 2.1 and 2.2 14B, 640 x 640, 81 frames", "wan", (21, 40, 40), {"blocks": 40}, WAN),
    "wan_5b": Model("Wan 2.2 5B, 1280 x 704, 121 frames", "wan", (31, 22, 40), {"blocks": 30},
                    WAN | {"dim": 3072, "ffn_dim": 14336, "num_heads": 24}),
    "z_image": Model("Z-Image, 1024 x 1024", "z_image", SQUARE, {"layers": 30}, Z_IMAGE, HEADS_OF_120),
    "qwen_image": Model("Qwen-Image, 1328 x 1328", "qwen_image", (1, 83, 83), {LAYERS: 60}, QWEN),
    "qwen_image21": Model("Qwen-Image 2.1, 1328 x 1328", "qwen_image21", (1, 83, 83), {LAYERS: 32}, QWEN21),
    "qwen_image21_2048": Model("Qwen-Image 2.1, 2048 x 2048", "qwen_image21", (1, 128, 128), {LAYERS: 32}, QWEN21),
    "flux2": Model("Flux.2 dev, 1024 x 1024", "flux2", SQUARE, dict(zip(JOINT, (8, 48), strict=True)), FLUX2),
    "flux2_klein_9b": Model("Flux.2 Klein 9B, 1024 x 1024", "flux2", SQUARE, dict(zip(JOINT, (8, 24), strict=True)),
                            FLUX2 | {"hidden_size": 4096, "num_heads": 32}),
    "flux2_klein_4b": Model("Flux.2 Klein 4B, 1024 x 1024", "flux2", SQUARE, dict(zip(JOINT, (5, 20), strict=True)),
                            FLUX2 | {"hidden_size": 3072, "num_heads": 24}),
    "flux": Model("Flux.1, 1024 x 1024", "flux", SQUARE, dict(zip(JOINT, (19, 38), strict=True)), HUNYUAN),
    "hunyuan_video": Model("HunyuanVideo, 848 x 480, 73 frames", "hunyuan_video", (19, 30, 53),
                           dict(zip(JOINT, (20, 40), strict=True)), HUNYUAN),
    "hunyuan_video_15": Model("HunyuanVideo 1.5, 1280 x 720, 121 frames", "hunyuan_video_15", (31, 45, 80),
                              {JOINT[0]: 54}, HUNYUAN_15),
}  # fmt: skip
NOTES = {
    "tokens": "of picture or video in the real model at this size",
    "linear, attention": "operations for each of them in one block of the real model, mean of all blocks, in thousand "
    "millions: 4 x tokens x width for self-attention, 2 x weights for linear layers",
    "attention share": "of all operations of the real model at this size",
    "weights": "random, one block of each kind",
}


class Made:
    """A model with its inputs, divided by ``part``: 1 or 4; 16 is a rehearsal of tiny width."""

    def __init__(self, model: Model, part: int, dtype: torch.dtype) -> None:
        sizes = {} if part > 4 else dict(model.sizes)
        if part == 4:
            sizes = {name: size // 4 if name in WIDTHS else size for name, size in sizes.items()} | model.quarter
        entry = transformers.ALL[model.kind]
        self.model, self.plain = model, transformers.build(model.kind, dtype=dtype, **sizes)
        frames, rows, columns = model.grid
        self.grid = frames, rows // round(part**0.5), -(-columns // round(part**0.5))
        sides = (side * entry.patch for side in self.grid[1:])
        self.latent: Any = torch.zeros(1, entry.channels, *(frames,) * bool(entry.frames), *sides)
        if model.sound:
            from comfy.nested_tensor import NestedTensor

            sound = (size // part if size == max(model.sound) else size for size in model.sound)
            self.latent = NestedTensor((self.latent, torch.zeros(1, *sound)))
        self.words = transformers.conditioning(model.kind, tokens=model.text // part)
        if model.kind == "flux2":  # fills up any text to 512 tokens, a quarter's too
            self.plain.model.extra_conds = super(type(self.plain.model), self.plain.model).extra_conds

    def step(self, patcher: Any) -> None:
        """Make one step without guidance."""
        sample(patcher, self.words, self.words, self.latent, steps=1, cfg=1.0, scheduler="simple")

    def operations(self, patcher: Any) -> tuple[float, float]:
        """Return those of attention and all others in a step, of each block as often as the real model has it."""
        with counting() as counter:
            self.step(patcher)
        counts, network = counter.get_flop_counts(), patcher.model.diffusion_model
        times = {f"{type(network).__name__}.{name}.0": layers - 1 for name, layers in self.model.blocks.items()}
        attention = others = 0.0
        for part, count in ({"Global": 1} | times).items():
            of_attention = sum(number for operator, number in counts[part].items() if "attention" in str(operator))
            attention += count * of_attention
            others += count * (sum(counts[part].values()) - of_attention)
        return attention, others


def counted(model: Model, part: int) -> Row:
    """Count the operations of one model."""
    made = Made(model, part, torch.float32)
    attention, others = made.operations(made.plain)
    tokens, blocks = math.prod(made.grid), sum(model.blocks.values())
    each = part * part / tokens / blocks / 1e9  # to one token and block of the real model
    quality = {
        "tokens": math.prod(model.grid),
        "linear": others * each,
        "attention": attention * each,
        "attention_share": attention / (attention + others),
    }
    return Row("plain", f"{model.name}; {tokens} tokens, float32", quality=quality)


def main() -> None:
    """Count all models, or those that were asked for."""
    options = arguments(__doc__.splitlines()[0], more=_more)
    bootstrap(cpu=True)
    with torch.inference_mode():
        lacking = transformers.lacking()
        names = options.only or [name for name, model in MODELS.items() if model.kind not in lacking]
        rows = collected(counted(MODELS[name], 16 if options.quick else 4) for name in names)
    report(rows, "plain", options.json, NOTES)


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", choices=tuple(MODELS), metavar="NAME", help="these models only")


if __name__ == "__main__":
    main()
