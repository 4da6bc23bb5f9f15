"""Names of linear layers, shared by many families, that int8 treats specially; others are in ``Family.protected``."""

from __future__ import annotations

_EMBEDDING = "it embeds or modulates: little work, much effect"
_BORDER = "first and last layers stay in full precision"

PROTECTED: tuple[tuple[str, str], ...] = (
    (r"(^|\.)(time|label|clip|vector|text|img|cap|caption|t|y|x|context|image|patch|pos)_emb|_x_embedder", _EMBEDDING),
    (r"(^|\.)(add|class)_embedding|emb_layers|timestep|time_text|time_proj|time_in\b|vector_in\b", _EMBEDDING),
    (r"guidance|time_stack.*time_pos", _EMBEDDING),
    (r"modulation|adaln|(^|[._])mod([._]|$)|scale_shift|(^|\.)norm\w*\.linear$", _EMBEDDING),
    (r"(^|\.)(img_in|txt_in|pos_embed|patch_embedding|text_embedding)\b", _BORDER),
    (r"refiner|encoder_hid_proj", "it prepares the text"),
    (r"^(final_layer|all_final_layer|last_layer|head|norm_out|proj_out|out)\b|^input_blocks\.0\.", _BORDER),
    # Z-Image and Lumina 2: their first layer has outliers that the others do not.
    (r"^layers\.0\.", "the first layer has outliers"),
)
"""Pattern of a name (searched, in either case) of layers that stay in floating point, and the reason."""

GATED_OUTPUT = (
    r"(ff\.net\.2|ffn\.net\.2|mlp\.2|mlp\.fc2|mlp\.c_proj|\.w2|linear2|ffn\.2|ff_context\.net\.2|mlp\.net\.2"
    r"|mlp\.down_proj|img_mlp\.out|feed_forward\.(linear_2|out_layer)|single_transformer_blocks\.\d+\.proj_out)$"
)
"""Pattern of names of layers after an activation (GEGLU, GELU, SwiGLU), whose inputs have long tails."""
