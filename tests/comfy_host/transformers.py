"""Diffusion transformers with random weights, a few thousand parameters each, of ComfyUI's own classes.

Head sizes and widths are tiny; blocks, token layouts, rotary positions and everything on the way are the real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from . import transformer_settings as of
from .checkpoints import _base_model, _patcher
from .paths import host_dir
from .transformer_settings import POOLED_CHANNELS, TEXT_CHANNELS


def _vision(tokens: int, channels: int) -> Any:
    """Return what CLIPVisionEncode hands on, as far as the networks look at it."""
    states = torch.randn(1, tokens, channels, generator=torch.Generator().manual_seed(5))
    return SimpleNamespace(penultimate_hidden_states=states, last_hidden_state=states)


def _token_ids() -> dict[str, Any]:
    """Return 20 tokens of text as HiDream O1's tokenizer gives them; the last stands for the noise level."""
    return {"text_input_ids": torch.cat([torch.arange(19), torch.tensor([151673])])[None]}


@dataclass(frozen=True)
class Transformer:
    """One entry of the zoo.

    Attributes:
        family: name of its family in ``optimizers/models/families.py``.
        config: class of ``comfy.supported_models``.
        settings: of the network.
        channels: of the latent.
        frames: of a video latent; 0 where latents are ``[batch, channels, height, width]``.
        patch: side of a patch.
        text: tokens that ``text`` tokens of conditioning become in the network.
        padding: multiple to which the network pads the image's tokens.
        more: further conditioning that the network needs.
        masked: whether the network needs a mask of the text.
        sound: size of the latent of sound beside a video's, without the batch.
        pixels: sides of a latent's place in pixels, where the network draws those.
        newer: where only a newer ComfyUI than the embedded one has the network, its place in ``comfy/ldm``.
    """

    family: str
    config: str
    settings: Mapping[str, Any]
    channels: int = 16
    frames: int = 0
    patch: int = 2
    text: Callable[[int], int] = field(default=lambda tokens: tokens)
    padding: int = 1
    more: Callable[[], dict[str, Any]] = dict
    masked: bool = False
    sound: tuple[int, ...] = ()
    pixels: int = 1
    newer: str = ""


_SEEN = {"more": lambda: {"clip_vision_output": _vision(257, 1280)}}
"""What Wan's networks are given that start from a picture."""

TRANSFORMERS: dict[str, Transformer] = {
    "flux": Transformer("Flux", "FluxSchnell", of.FLUX),
    "flux2": Transformer("Flux", "Flux2", of.FLUX2, channels=128, patch=1, text=lambda tokens: max(tokens, 512)),
    "chroma": Transformer("Chroma", "Chroma", of.CHROMA),
    "sd3": Transformer("SD3", "SD3", of.SD3),
    "sd35_medium": Transformer("SD3", "SD3", of.SD3 | {"x_block_self_attn_layers": [0]}),
    "qwen_image": Transformer("Qwen-Image", "QwenImage", of.QWEN, frames=1),
    "qwen_image21": Transformer("Qwen-Image 2.1", "QwenImage21", of.QWEN21, channels=64, patch=1, newer="qwen_image21"),
    "lumina2": Transformer("Z-Image", "Lumina2", of.LUMINA),
    "z_image": Transformer(
        "Z-Image", "ZImage",
        of.LUMINA
        | {"dim": 256, "n_heads": 16, "n_kv_heads": 16, "z_image_modulation": True, "pad_tokens_multiple": 32},
        text=lambda tokens: -(-tokens // 32) * 32, padding=32,
    ),
    "wan": Transformer("Wan", "WAN21_T2V", of.WAN, frames=3),
    "wan_i2v": Transformer("Wan", "WAN21_I2V", of.WAN | {"model_type": "i2v", "in_dim": 36}, frames=3, **_SEEN),
    "wan_5b": Transformer("Wan", "WAN22_T2V", of.WAN | {"in_dim": 48, "out_dim": 48}, channels=48, frames=3),
    "wan_vace": Transformer(
        "Wan", "WAN21_Vace", of.WAN | {"model_type": "vace", "vace_layers": 1, "vace_in_dim": 96}, frames=3
    ),
    "wan_camera": Transformer("Wan", "WAN22_Camera", of.WAN | {"model_type": "camera_2.2", "in_dim": 36}, frames=3),
    "hunyuan_video": Transformer("HunyuanVideo", "HunyuanVideo", of.HUNYUAN_VIDEO, frames=3),
    "hunyuan_video_15": Transformer(
        "HunyuanVideo", "HunyuanVideo15", of.HUNYUAN_VIDEO_15, channels=32, frames=3, patch=1,
        text=lambda tokens: tokens + 6 + 5,
        more=lambda: {"conditioning_byt5small": torch.zeros(1, 6, 1472), "clip_vision_output": _vision(5, 1152)},
    ),
    "cogvideo": Transformer("CogVideoX", "CogVideoX_T2V", of.COGVIDEO, frames=3),
    "cogvideo_15": Transformer("CogVideoX", "CogVideoX_T2V", of.COGVIDEO | {"patch_size_t": 2}, frames=4),
    "hunyuan_image": Transformer("HunyuanVideo", "HunyuanImage21", of.HUNYUAN_IMAGE, channels=64, patch=1),
    "krea2": Transformer("Krea 2", "Krea2", of.KREA2, frames=1),
    "anima": Transformer("Anima", "Anima", of.ANIMA, frames=1),
    "cosmos_predict2": Transformer(
        "Anima", "CosmosT2IPredict2", of.ANIMA | {"image_model": "cosmos_predict2"}, frames=3
    ),
    "ltx": Transformer("LTX-Video", "LTXV", of.LTX, channels=128, frames=3, patch=1, masked=True),
    "mage_flow": Transformer("Mage-Flow", "MageFlow", of.MAGE_FLOW, channels=128, patch=1),
    "wan_animate": Transformer("Wan Animate", "WAN22_Animate", of.WAN_ANIMATE, frames=3),
    "wan_animate2": Transformer(
        "Wan", "WAN_Animate2", of.WAN | {"model_type": "animate2", "in_dim": 36}, frames=3,
        newer="wan/model_animate2.py", **_SEEN,
    ),
    "wan_dancer": Transformer(
        "Wan", "WAN22_WanDancer", of.WAN | {"model_type": "wandancer", "in_dim": 36}, frames=3, **_SEEN
    ),
    "wan_humo": Transformer("Wan", "WAN21_HuMo", of.WAN | {"model_type": "humo", "in_dim": 36}, frames=3),
    "wan_scail": Transformer("Wan", "WAN21_SCAIL2", of.WAN_SCAIL, frames=3),
    "ideogram4": Transformer("Ideogram 4", "Ideogram4", of.IDEOGRAM4, channels=128, patch=1),
    "hidream_o1": Transformer("HiDream O1", "HiDreamO1", of.HIDREAM_O1, channels=3, more=_token_ids, pixels=16),
    "kandinsky5": Transformer("Kandinsky 5", "Kandinsky5", of.KANDINSKY5, frames=3),
    "kandinsky5_image": Transformer("Kandinsky 5", "Kandinsky5Image", of.KANDINSKY5 | {"visual_embed_dim": 64}),
    "omnigen2": Transformer("OmniGen2", "Omnigen2", of.OMNIGEN2, masked=True),
    "boogu": Transformer("Boogu", "Boogu", of.BOOGU, masked=True),
    "joyimage": Transformer("JoyImage", "JoyImage", of.JOYIMAGE, frames=1),
    "lens": Transformer("Lens", "Lens", of.LENS, channels=128, patch=1),
}  # fmt: skip

WITH_SOUND: dict[str, Transformer] = {
    "minimax_h3": Transformer("MiniMax H3", "MiniMaxH3", of.MINIMAX_H3, channels=24, frames=3, sound=(32, 2, 5)),
    "ltx2": Transformer("LTX-Video", "LTXAV", of.LTX2, channels=128, frames=3, patch=1, sound=(8, 10, 16)),
}
"""Further ones, whose latents are two: of a video and of its sound."""

ALL = TRANSFORMERS | WITH_SOUND


def lacking() -> set[str]:
    """Return the names of those whose class this ComfyUI does not have."""
    folders = host_dir() / "comfy" / "ldm"
    return {name for name, entry in ALL.items() if entry.newer and not (folders / entry.newer).exists()}


def build(
    name: str,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    disable_dynamic: bool = False,
    **settings: Any,
) -> Any:
    """Return a MODEL of one of ``TRANSFORMERS`` or ``WITH_SOUND``, with weights in ``dtype`` and other ``settings``.

    ``device`` makes the weights. ComfyUI asks loaders for one without dynamic VRAM, and so it can ask this one. Needs
    ``in_process.bootstrap()``.
    """
    import comfy.model_patcher as patchers
    import comfy.supported_models

    entry = ALL[name]
    config = getattr(comfy.supported_models, entry.config)
    base = _base_model(config, {**entry.settings, **settings}, dtype, "cpu")
    if name == "minimax_h3":  # comes with the file
        frequencies = base.diffusion_model.rope.inv_freq
        frequencies.copy_(10000.0 ** -torch.linspace(0, 1, len(frequencies)))
        if base.diffusion_model.use_adaln_curves:
            table = base.diffusion_model.adaln_t_table
            table.copy_(torch.linspace(-1, 1, table.numel()).view_as(table).sin())
    kind = patchers.ModelPatcher if disable_dynamic else patchers.CoreModelPatcher
    with patch.object(patchers, "CoreModelPatcher", kind):
        patcher = _patcher(base, seed, device)
    patcher.cached_patcher_init = (partial(build, **settings), (name, seed, dtype, device))
    return patcher


def latent(name: str, height: int = 16, width: int = 24, batch: int = 1) -> Any:
    """Return an empty latent that fits, ``[batch, channels, (frames,) height, width]``; with sound, a NestedTensor.

    Of a network that draws pixels, ``height`` and ``width`` are in ``Transformer.pixels``.
    """
    entry = ALL[name]
    frames = (entry.frames,) if entry.frames else ()
    picture = torch.zeros(batch, entry.channels, *frames, height * entry.pixels, width * entry.pixels)
    if not entry.sound:
        return picture
    from comfy.nested_tensor import NestedTensor

    return NestedTensor((picture, torch.zeros(batch, *entry.sound)))


def conditioning(name: str, tokens: int = 20, seed: int = 0, **more: Any) -> list[list[Any]]:
    """Return random conditioning that fits an entry, with ``more`` in its options."""
    generator = torch.Generator().manual_seed(seed)
    context = torch.randn(1, tokens, TEXT_CHANNELS, generator=generator)
    pooled = torch.randn(1, POOLED_CHANNELS, generator=generator)
    if ALL[name].masked:
        more = {"attention_mask": torch.ones(1, tokens, dtype=torch.long)} | more
    return [[context, {"pooled_output": pooled, **ALL[name].more(), **more}]]
