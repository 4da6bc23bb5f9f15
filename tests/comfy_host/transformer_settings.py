"""Settings of the small diffusion transformers: widths and blocks as ComfyUI reads them from a file."""

from __future__ import annotations

from typing import Any

TEXT_CHANNELS = 24
POOLED_CHANNELS = 16

FLUX: dict[str, Any] = {
    "in_channels": 16, "out_channels": 16, "vec_in_dim": POOLED_CHANNELS, "context_in_dim": TEXT_CHANNELS,
    "hidden_size": 32, "mlp_ratio": 2.0, "num_heads": 2, "depth": 2, "depth_single_blocks": 3, "axes_dim": [4, 6, 6],
    "theta": 10000, "patch_size": 2, "qkv_bias": True, "guidance_embed": False, "txt_ids_dims": [],
}  # fmt: skip
FLUX2: dict[str, Any] = FLUX | {
    "image_model": "flux2", "in_channels": 128, "out_channels": 128, "vec_in_dim": None, "axes_dim": [4, 4, 4, 4],
    "patch_size": 1, "qkv_bias": False, "txt_ids_dims": [3], "global_modulation": True, "mlp_silu_act": True,
    "ops_bias": False,
}  # fmt: skip
CHROMA: dict[str, Any] = {key: value for key, value in FLUX.items() if key != "guidance_embed"} | {
    "image_model": "chroma", "in_channels": 64, "out_channels": 64, "in_dim": 64, "out_dim": 32, "hidden_dim": 32,
    "n_layers": 1,
}  # fmt: skip
SD3: dict[str, Any] = {
    "in_channels": 16, "patch_size": 2, "depth": 2, "input_size": None, "adm_in_channels": POOLED_CHANNELS,
    "pos_embed_scaling_factor": None, "qk_norm": "rms",
    "context_embedder_config": {
        "target": "torch.nn.Linear", "params": {"in_features": TEXT_CHANNELS, "out_features": 128},
    },
}  # fmt: skip
QWEN: dict[str, Any] = {
    "image_model": "qwen_image", "in_channels": 64, "out_channels": 16, "num_layers": 2, "attention_head_dim": 16,
    "num_attention_heads": 2, "joint_attention_dim": TEXT_CHANNELS, "axes_dims_rope": (4, 6, 6),
}  # fmt: skip
QWEN21: dict[str, Any] = {
    "image_model": "qwen_image21", "in_channels": 64, "out_channels": 64, "num_layers": 2, "attention_head_dim": 16,
    "num_attention_heads": 2, "context_in_dim": TEXT_CHANNELS, "axes_dims_rope": (4, 6, 6),
}  # fmt: skip
LUMINA: dict[str, Any] = {
    "image_model": "lumina2", "patch_size": 2, "in_channels": 16, "dim": 32, "n_layers": 2, "n_refiner_layers": 1,
    "n_heads": 2, "n_kv_heads": 1, "multiple_of": 8, "qk_norm": True, "cap_feat_dim": TEXT_CHANNELS,
    "axes_dims": [4, 6, 6], "axes_lens": [300, 512, 512],
}  # fmt: skip
KREA2: dict[str, Any] = {
    "image_model": "krea2", "features": 64, "tdim": 16, "txtdim": TEXT_CHANNELS // 3, "heads": 4, "kvheads": 2,
    "layers": 2, "channels": 16, "txtlayers": 3, "txtheads": 2, "txtkvheads": 1,
}  # fmt: skip
ANIMA: dict[str, Any] = {
    "image_model": "anima", "max_img_h": 240, "max_img_w": 240, "max_frames": 128, "in_channels": 16,
    "out_channels": 16, "patch_spatial": 2, "patch_temporal": 1, "concat_padding_mask": True, "model_channels": 32,
    "num_blocks": 2, "num_heads": 2, "crossattn_emb_channels": TEXT_CHANNELS, "pos_emb_cls": "rope3d",
    "pos_emb_learnable": True, "pos_emb_interpolation": "crop", "use_adaln_lora": True, "adaln_lora_dim": 8,
}  # fmt: skip
MAGE_FLOW: dict[str, Any] = {
    "image_model": "mage_flow", "in_channels": 128, "out_channels": 128, "num_layers": 2, "attention_head_dim": 16,
    "num_attention_heads": 2, "joint_attention_dim": TEXT_CHANNELS, "axes_dims_rope": (4, 6, 6),
}  # fmt: skip
IDEOGRAM4: dict[str, Any] = {
    "image_model": "ideogram4", "in_channels": 128, "num_layers": 2, "num_attention_heads": 2, "attention_head_dim": 16,
    "intermediate_size": 32, "adaln_dim": 8, "llm_features_dim": TEXT_CHANNELS, "mrope_section": [4, 2, 2],
}  # fmt: skip
HIDREAM_O1: dict[str, Any] = {
    "image_model": "hidream_o1",
    "text_config_overrides": {
        "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "rope_dims": [4, 2, 2],
    },
    "vision_config_overrides": {
        "hidden_size": 32, "num_heads": 2, "intermediate_size": 32, "depth": 1, "num_position_embeddings": 16,
    },
}  # fmt: skip
KANDINSKY5: dict[str, Any] = {
    "image_model": "kandinsky5", "in_text_dim": TEXT_CHANNELS, "in_text_dim2": POOLED_CHANNELS, "time_dim": 16,
    "model_dim": 32, "ff_dim": 32, "axes_dims": (4, 6, 6), "num_text_blocks": 1, "num_visual_blocks": 2,
}  # fmt: skip
OMNIGEN2: dict[str, Any] = {
    "image_model": "omnigen2", "hidden_size": 32, "num_layers": 2, "num_refiner_layers": 1, "num_attention_heads": 4,
    "num_kv_heads": 2, "multiple_of": 16, "axes_dim_rope": (4, 2, 2), "text_feat_dim": TEXT_CHANNELS,
}  # fmt: skip
BOOGU: dict[str, Any] = {name: value for name, value in OMNIGEN2.items() if name != "text_feat_dim"} | {
    "image_model": "boogu", "num_double_stream_layers": 1, "instruction_feat_dim": TEXT_CHANNELS,
}  # fmt: skip
JOYIMAGE: dict[str, Any] = {
    "image_model": "joyimage", "hidden_size": 32, "num_attention_heads": 2, "text_dim": TEXT_CHANNELS, "num_layers": 2,
    "rope_dim_list": [4, 6, 6],
}  # fmt: skip
LENS: dict[str, Any] = {
    "image_model": "lens", "num_layers": 2, "attention_head_dim": 16, "num_attention_heads": 2,
    "enc_hidden_dim": TEXT_CHANNELS // 4, "axes_dims_rope": (4, 6, 6),
}  # fmt: skip
WAN: dict[str, Any] = {
    "image_model": "wan2.1", "model_type": "t2v", "patch_size": (1, 2, 2), "in_dim": 16, "out_dim": 16, "dim": 24,
    "ffn_dim": 48, "freq_dim": 16, "text_dim": TEXT_CHANNELS, "num_heads": 2, "num_layers": 2,
}  # fmt: skip
COGVIDEO: dict[str, Any] = {
    "image_model": "cogvideox", "num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 16,
    "time_embed_dim": 16, "text_embed_dim": TEXT_CHANNELS, "num_layers": 2, "use_rotary_positional_embeddings": True,
}  # fmt: skip
HUNYUAN_VIDEO: dict[str, Any] = {key: value for key, value in FLUX.items() if key != "txt_ids_dims"} | {
    "image_model": "hunyuan_video", "theta": 256, "patch_size": [1, 2, 2], "byt5": False, "meanflow": False,
    "use_cond_type_embedding": False, "vision_in_dim": None, "meanflow_sum": False,
}  # fmt: skip
HUNYUAN_VIDEO_15: dict[str, Any] = HUNYUAN_VIDEO | {
    "in_channels": 65, "out_channels": 32, "vec_in_dim": None, "patch_size": [1, 1, 1], "byt5": True,
    "use_cond_type_embedding": True, "vision_in_dim": 1152,
}  # fmt: skip
HUNYUAN_IMAGE: dict[str, Any] = HUNYUAN_VIDEO | {
    "in_channels": 64, "out_channels": 64, "vec_in_dim": None, "axes_dim": [8, 8], "patch_size": [1, 1],
}  # fmt: skip
MINIMAX_H3: dict[str, Any] = {
    "image_model": "minimax_h3", "hidden_size": 32, "num_layers": 2,
    "token_refiner_num_layers": 1,  # nosec B105
    "num_attention_heads": 2, "attention_head_dim": 16, "ffn_hidden_size": 32, "text_dim": TEXT_CHANNELS,
    "timestep_input_dim": 16, "time_embed_hidden_size": 16, "time_embed_dim": 16, "rope_inv_freq_len": 2,
}  # fmt: skip
LTX: dict[str, Any] = {
    "image_model": "ltxv", "in_channels": 128, "num_layers": 2, "num_attention_heads": 2, "attention_head_dim": 16,
    "cross_attention_dim": 32, "caption_channels": TEXT_CHANNELS,
}  # fmt: skip
LTX2: dict[str, Any] = LTX | {
    "image_model": "ltxav", "caption_channels": TEXT_CHANNELS // 2, "audio_in_channels": 128,
    "audio_num_attention_heads": 2, "audio_attention_head_dim": 16, "audio_cross_attention_dim": 32,
    "connector_attention_head_dim": 16, "connector_num_attention_heads": 2, "connector_num_layers": 1,
}  # fmt: skip
WAN_ANIMATE: dict[str, Any] = WAN | {"model_type": "animate", "in_dim": 36}
WAN_SCAIL: dict[str, Any] = WAN | {"model_type": "scail2", "in_dim": 20}
