"""The attention layers whose projections can be computed together. Data, not code.

They are recognised by the exact class of the layer, wherever in a network it stands. How a layer calls its projections
need not be known: each result is handed over only for the very tokens it was computed from (see ``qkv_fusion``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

INPUTS_VARY = "inputs vary"
"""``forward(x, context=None, ...)``: keys and values are of ``context``, or of ``x`` where there is none."""


@dataclass(frozen=True)
class AttentionLayer:
    """One class of attention layers.

    Attributes:
        models: names a user knows.
        layer: dotted path of the class.
        projections: attributes of the layers that always read the same tokens, query first if it is among them.
        inputs: ``INPUTS_VARY`` where only the call says whether the query's tokens are those of the keys; else empty.
        value_is_third: whether ``forward(x, context, value)`` can give the values other tokens than the keys.
    """

    models: str
    layer: str
    projections: tuple[tuple[str, ...], ...]
    inputs: str = ""
    value_is_third: bool = False


LAYERS: tuple[AttentionLayer, ...] = (
    AttentionLayer(
        models="SD 1.x, SD 2.x, SDXL, SVD and relatives",
        layer="comfy.ldm.modules.attention.CrossAttention",
        projections=(("to_q", "to_k", "to_v"),),
        inputs=INPUTS_VARY,
        value_is_third=True,
    ),
    AttentionLayer(
        models="Qwen-Image",
        layer="comfy.ldm.qwen_image.model.Attention",
        projections=(("to_q", "to_k", "to_v"), ("add_q_proj", "add_k_proj", "add_v_proj")),
    ),
    AttentionLayer(
        models="Wan",
        layer="comfy.ldm.wan.model.WanSelfAttention",
        projections=(("q", "k", "v"),),
    ),
    AttentionLayer(
        models="Wan",
        layer="comfy.ldm.wan.model.WanT2VCrossAttention",
        projections=(("k", "v"),),
    ),
    AttentionLayer(
        models="Wan",
        layer="comfy.ldm.wan.model.WanI2VCrossAttention",
        projections=(("k", "v"), ("k_img", "v_img")),
    ),
    AttentionLayer(
        models="LTX-Video",
        layer="comfy.ldm.lightricks.model.CrossAttention",
        projections=(("to_q", "to_k", "to_v"),),
        inputs=INPUTS_VARY,
    ),
)


def find_layer(module: Any) -> AttentionLayer | None:
    """Return what is known of a module's class; None for everything else. Imports nothing of ComfyUI."""
    path = f"{type(module).__module__}.{type(module).__qualname__}"
    return next((layer for layer in LAYERS if layer.layer == path), None)


def served_models() -> str:
    """Return the models that Fuse QKV serves, as a list in one line."""
    return "; ".join(dict.fromkeys(layer.models for layer in LAYERS))


def fused_by_design(network: Any) -> str | None:
    """Return the name of a layer that computes query, key and value together already, or None (Flux, SD3, ...)."""
    return next((name for name, _ in network.named_modules() if name.rpartition(".")[2] in ("qkv", "to_qkv")), None)
