"""Names of linear layers that stay in floating point under int8: those that the authors of many families share.

A name of one family alone belongs into its record (``Family.protected``).
"""

from __future__ import annotations

_EMBEDDING = "it embeds or modulates: little work, much effect"
_BORDER = "first and last layers stay in full precision"

PROTECTED: tuple[tuple[str, str], ...] = (
    (r"(^|\.)(time|label|clip|vector|text|img|cap|t|y|x|context|image|patch|pos)_emb", _EMBEDDING),
    (r"emb_layers|timestep|time_text|time_proj|time_in\b|vector_in\b|guidance|time_stack.*time_pos", _EMBEDDING),
    (r"modulation|adaln|(^|[._])mod([._]|$)|scale_shift", _EMBEDDING),
    (r"(^|\.)(img_in|txt_in|pos_embed|patch_embedding|text_embedding)\b", _BORDER),
    (r"refiner", "it prepares the text"),
    (r"^(final_layer|last_layer|head|norm_out|proj_out|out)\b|^input_blocks\.0\.", _BORDER),
    # Z-Image and Lumina 2: their first layer has outliers that the others do not.
    (r"^layers\.0\.", "the first layer has outliers"),
)
"""Pattern of a name in ComfyUI (searched, in either case), and the reason."""

ONE_ROW = r"time_emb|add_embedding|class_embedding|time_text_embed|norm\w*\.linear$|encoder_hid_proj"
"""Pattern of names in diffusers: layers that are given one row for each image."""
