"""Diffusion transformers with random weights, a few thousand parameters each, of ComfyUI's own classes.

Head sizes and widths are tiny; blocks, token layouts, rotary positions and everything on the way are the real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

from .checkpoints import _base_model, _patcher

TEXT_CHANNELS = 24
POOLED_CHANNELS = 16

_FLUX: dict[str, Any] = {
    "in_channels": 16,
    "out_channels": 16,
    "vec_in_dim": POOLED_CHANNELS,
    "context_in_dim": TEXT_CHANNELS,
    "hidden_size": 32,
    "mlp_ratio": 2.0,
    "num_heads": 2,
    "depth": 2,
    "depth_single_blocks": 3,
    "axes_dim": [4, 6, 6],
    "theta": 10000,
    "patch_size": 2,
    "qkv_bias": True,
    "guidance_embed": False,
    "txt_ids_dims": [],
}
_FLUX2: dict[str, Any] = _FLUX | {
    "image_model": "flux2",
    "in_channels": 128,
    "out_channels": 128,
    "vec_in_dim": None,
    "axes_dim": [4, 4, 4, 4],
    "patch_size": 1,
    "qkv_bias": False,
    "txt_ids_dims": [3],
    "global_modulation": True,
    "mlp_silu_act": True,
    "ops_bias": False,
}
_CHROMA: dict[str, Any] = {key: value for key, value in _FLUX.items() if key != "guidance_embed"} | {
    "image_model": "chroma",
    "in_channels": 64,
    "out_channels": 64,
    "in_dim": 64,
    "out_dim": 32,
    "hidden_dim": 32,
    "n_layers": 1,
}
_SD3: dict[str, Any] = {
    "in_channels": 16,
    "patch_size": 2,
    "depth": 2,
    "input_size": None,
    "adm_in_channels": POOLED_CHANNELS,
    "pos_embed_scaling_factor": None,
    "qk_norm": "rms",
    "context_embedder_config": {
        "target": "torch.nn.Linear",
        "params": {"in_features": TEXT_CHANNELS, "out_features": 128},
    },
}
_QWEN: dict[str, Any] = {
    "image_model": "qwen_image",
    "in_channels": 64,
    "out_channels": 16,
    "num_layers": 2,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": TEXT_CHANNELS,
    "axes_dims_rope": (4, 6, 6),
}
_LUMINA: dict[str, Any] = {
    "image_model": "lumina2",
    "patch_size": 2,
    "in_channels": 16,
    "dim": 32,
    "n_layers": 2,
    "n_refiner_layers": 1,
    "n_heads": 2,
    "n_kv_heads": 1,
    "multiple_of": 8,
    "qk_norm": True,
    "cap_feat_dim": TEXT_CHANNELS,
    "axes_dims": [4, 6, 6],
    "axes_lens": [300, 512, 512],
}
_WAN: dict[str, Any] = {
    "image_model": "wan2.1",
    "model_type": "t2v",
    "patch_size": (1, 2, 2),
    "in_dim": 16,
    "out_dim": 16,
    "dim": 24,
    "ffn_dim": 48,
    "freq_dim": 16,
    "text_dim": TEXT_CHANNELS,
    "num_heads": 2,
    "num_layers": 2,
}
_HUNYUAN_VIDEO: dict[str, Any] = {key: value for key, value in _FLUX.items() if key != "txt_ids_dims"} | {
    "image_model": "hunyuan_video",
    "theta": 256,
    "patch_size": [1, 2, 2],
    "byt5": False,
    "meanflow": False,
    "use_cond_type_embedding": False,
    "vision_in_dim": None,
    "meanflow_sum": False,
}
_HUNYUAN_VIDEO_15: dict[str, Any] = _HUNYUAN_VIDEO | {
    "in_channels": 65,
    "out_channels": 32,
    "vec_in_dim": None,
    "patch_size": [1, 1, 1],
    "byt5": True,
    "use_cond_type_embedding": True,
    "vision_in_dim": 1152,
}
_HUNYUAN_IMAGE: dict[str, Any] = _HUNYUAN_VIDEO | {
    "in_channels": 64,
    "out_channels": 64,
    "vec_in_dim": None,
    "axes_dim": [8, 8],
    "patch_size": [1, 1],
}
_KREA2: dict[str, Any] = {
    "image_model": "krea2",
    "features": 64,
    "tdim": 16,
    "txtdim": TEXT_CHANNELS // 3,
    "heads": 4,
    "kvheads": 2,
    "layers": 2,
    "channels": 16,
    "txtlayers": 3,
    "txtheads": 2,
    "txtkvheads": 1,
}
_ANIMA: dict[str, Any] = {
    "image_model": "anima",
    "max_img_h": 240,
    "max_img_w": 240,
    "max_frames": 128,
    "in_channels": 16,
    "out_channels": 16,
    "patch_spatial": 2,
    "patch_temporal": 1,
    "concat_padding_mask": True,
    "model_channels": 32,
    "num_blocks": 2,
    "num_heads": 2,
    "crossattn_emb_channels": TEXT_CHANNELS,
    "pos_emb_cls": "rope3d",
    "pos_emb_learnable": True,
    "pos_emb_interpolation": "crop",
    "use_adaln_lora": True,
    "adaln_lora_dim": 8,
}
_MAGE_FLOW: dict[str, Any] = {
    "image_model": "mage_flow",
    "in_channels": 128,
    "out_channels": 128,
    "num_layers": 2,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": TEXT_CHANNELS,
    "axes_dims_rope": (4, 6, 6),
}
_MINIMAX_H3: dict[str, Any] = {
    "image_model": "minimax_h3",
    "hidden_size": 32,
    "num_layers": 2,
    "token_refiner_num_layers": 1,
    "num_attention_heads": 2,
    "attention_head_dim": 16,
    "ffn_hidden_size": 32,
    "text_dim": TEXT_CHANNELS,
    "timestep_input_dim": 16,
    "time_embed_hidden_size": 16,
    "time_embed_dim": 16,
    "rope_inv_freq_len": 2,
}
_LTX: dict[str, Any] = {
    "image_model": "ltxv",
    "in_channels": 128,
    "num_layers": 2,
    "num_attention_heads": 2,
    "attention_head_dim": 16,
    "cross_attention_dim": 32,
    "caption_channels": TEXT_CHANNELS,
}
_LTX2: dict[str, Any] = _LTX | {
    "image_model": "ltxav",
    "caption_channels": TEXT_CHANNELS // 2,
    "audio_in_channels": 128,
    "audio_num_attention_heads": 2,
    "audio_attention_head_dim": 16,
    "audio_cross_attention_dim": 32,
    "connector_attention_head_dim": 16,
    "connector_num_attention_heads": 2,
    "connector_num_layers": 1,
}


def _vision(tokens: int, channels: int) -> Any:
    """Return what CLIPVisionEncode hands on, as far as the networks look at it."""
    states = torch.randn(1, tokens, channels, generator=torch.Generator().manual_seed(5))
    return SimpleNamespace(penultimate_hidden_states=states, last_hidden_state=states)


@dataclass(frozen=True)
class Transformer:
    """One entry of the zoo.

    Attributes:
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
    """

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


TRANSFORMERS: dict[str, Transformer] = {
    "flux": Transformer("FluxSchnell", _FLUX),
    "flux2": Transformer("Flux2", _FLUX2, channels=128, patch=1, text=lambda tokens: max(tokens, 512)),
    "chroma": Transformer("Chroma", _CHROMA),
    "sd3": Transformer("SD3", _SD3),
    "sd35_medium": Transformer("SD3", _SD3 | {"x_block_self_attn_layers": [0]}),
    "qwen_image": Transformer("QwenImage", _QWEN, frames=1),
    "lumina2": Transformer("Lumina2", _LUMINA),
    "z_image": Transformer(
        "ZImage",
        _LUMINA | {"dim": 256, "n_heads": 16, "n_kv_heads": 16, "z_image_modulation": True, "pad_tokens_multiple": 32},
        text=lambda tokens: -(-tokens // 32) * 32,
        padding=32,
    ),
    "wan": Transformer("WAN21_T2V", _WAN, frames=3),
    "wan_i2v": Transformer(
        "WAN21_I2V",
        _WAN | {"model_type": "i2v", "in_dim": 36},
        frames=3,
        more=lambda: {"clip_vision_output": _vision(257, 1280)},
    ),
    "wan_vace": Transformer("WAN21_Vace", _WAN | {"model_type": "vace", "vace_layers": 1, "vace_in_dim": 96}, frames=3),
    "wan_camera": Transformer("WAN22_Camera", _WAN | {"model_type": "camera_2.2", "in_dim": 36}, frames=3),
    "hunyuan_video": Transformer("HunyuanVideo", _HUNYUAN_VIDEO, frames=3),
    "hunyuan_video_15": Transformer(
        "HunyuanVideo15",
        _HUNYUAN_VIDEO_15,
        channels=32,
        frames=3,
        patch=1,
        text=lambda tokens: tokens + 6 + 5,
        more=lambda: {"conditioning_byt5small": torch.zeros(1, 6, 1472), "clip_vision_output": _vision(5, 1152)},
    ),
    "hunyuan_image": Transformer("HunyuanImage21", _HUNYUAN_IMAGE, channels=64, patch=1),
    "krea2": Transformer("Krea2", _KREA2, frames=1),
    "anima": Transformer("Anima", _ANIMA, frames=1),
    "cosmos_predict2": Transformer("CosmosT2IPredict2", _ANIMA | {"image_model": "cosmos_predict2"}, frames=3),
    "ltx": Transformer("LTXV", _LTX, channels=128, frames=3, patch=1, masked=True),
    "mage_flow": Transformer("MageFlow", _MAGE_FLOW, channels=128, patch=1),
}

WITH_SOUND: dict[str, Transformer] = {
    "minimax_h3": Transformer("MiniMaxH3", _MINIMAX_H3, channels=24, frames=3, sound=(32, 2, 5)),
    "ltx2": Transformer("LTXAV", _LTX2, channels=128, frames=3, patch=1, sound=(8, 10, 16)),
}
"""Further ones, whose latents are two: of a video and of its sound."""

ALL = TRANSFORMERS | WITH_SOUND


def build(name: str, seed: int = 0, dtype: torch.dtype = torch.float32, **settings: Any) -> Any:
    """Return a MODEL of one of ``TRANSFORMERS`` or ``WITH_SOUND``, with weights in ``dtype`` and other ``settings``.

    Needs ``in_process.bootstrap()``.
    """
    import comfy.supported_models

    entry = ALL[name]
    config = getattr(comfy.supported_models, entry.config)
    base = _base_model(config, {**entry.settings, **settings}, dtype, "cpu")
    if name == "minimax_h3":  # comes with the file
        frequencies = base.diffusion_model.rope.inv_freq
        frequencies.copy_(10000.0 ** -torch.linspace(0, 1, len(frequencies)))
    return _patcher(base, seed)


def latent(name: str, height: int = 16, width: int = 24, batch: int = 1) -> Any:
    """Return an empty latent that fits, ``[batch, channels, (frames,) height, width]``; with sound, a NestedTensor."""
    entry = ALL[name]
    frames = (entry.frames,) if entry.frames else ()
    picture = torch.zeros(batch, entry.channels, *frames, height, width)
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
