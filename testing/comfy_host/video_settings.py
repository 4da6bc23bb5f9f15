"""Settings of the small diffusion transformers of videos, as in ``transformer_settings``."""

from __future__ import annotations

from typing import Any

from .transformer_settings import FLUX, TEXT_CHANNELS

WAN: dict[str, Any] = {
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
COGVIDEO: dict[str, Any] = {
    "image_model": "cogvideox",
    "num_attention_heads": 2,
    "attention_head_dim": 16,
    "in_channels": 16,
    "time_embed_dim": 16,
    "text_embed_dim": TEXT_CHANNELS,
    "num_layers": 2,
    "use_rotary_positional_embeddings": True,
}
HUNYUAN_VIDEO: dict[str, Any] = {key: value for key, value in FLUX.items() if key != "txt_ids_dims"} | {
    "image_model": "hunyuan_video",
    "theta": 256,
    "patch_size": [1, 2, 2],
    "byt5": False,
    "meanflow": False,
    "use_cond_type_embedding": False,
    "vision_in_dim": None,
    "meanflow_sum": False,
}
HUNYUAN_VIDEO_15: dict[str, Any] = HUNYUAN_VIDEO | {
    "in_channels": 65,
    "out_channels": 32,
    "vec_in_dim": None,
    "patch_size": [1, 1, 1],
    "byt5": True,
    "use_cond_type_embedding": True,
    "vision_in_dim": 1152,
}
HUNYUAN_IMAGE: dict[str, Any] = HUNYUAN_VIDEO | {
    "in_channels": 64,
    "out_channels": 64,
    "vec_in_dim": None,
    "axes_dim": [8, 8],
    "patch_size": [1, 1],
}
MINIMAX_H3: dict[str, Any] = {
    "image_model": "minimax_h3",
    "hidden_size": 32,
    "num_layers": 2,
    "token_refiner_num_layers": 1,  # nosec B105
    "num_attention_heads": 2,
    "attention_head_dim": 16,
    "ffn_hidden_size": 32,
    "text_dim": TEXT_CHANNELS,
    "timestep_input_dim": 16,
    "time_embed_hidden_size": 16,
    "time_embed_dim": 16,
    "rope_inv_freq_len": 2,
}
LTX: dict[str, Any] = {
    "image_model": "ltxv",
    "in_channels": 128,
    "num_layers": 2,
    "num_attention_heads": 2,
    "attention_head_dim": 16,
    "cross_attention_dim": 32,
    "caption_channels": TEXT_CHANNELS,
}
LTX2: dict[str, Any] = LTX | {
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
WAN_ANIMATE: dict[str, Any] = WAN | {"model_type": "animate", "in_dim": 36}
WAN_SCAIL: dict[str, Any] = WAN | {"model_type": "scail2", "in_dim": 20}
