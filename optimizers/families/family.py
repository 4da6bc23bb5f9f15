"""The record of a family of models, with a section for each technique. Imports no host."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AttentionLayer:
    """One class of attention layers whose projections can be computed together, recognised by its exact class.

    How a layer calls its projections need not be known: each result is handed over only for the very tokens it was
    computed from (see ``qkv_fusion``).

    Attributes:
        layer: dotted path of the class.
        projections: attributes of the layers that always read the same tokens, query first if it is among them.
        inputs: where only the call says whether the query's tokens are those of the keys, the names of the first
            arguments of ``forward``: tokens, context, and values where they can be other tokens than the keys.
    """

    layer: str
    projections: tuple[tuple[str, ...], ...]
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Family:
    """Models whose networks are built alike.

    Attributes:
        networks: dotted paths of the exact classes, in ComfyUI and diffusers: a subclass may lay out its tokens in
            another way. A package stands for all classes in it, ``package.Class`` for that class wherever in it.
        parts: names by which diffusers' pipelines have the network.
        attention: for Fuse QKV: the attention layers with separate projections.
        fused_by_design: whether its layers compute query, key and value together already.
        override_hook: whether its attention reaches ComfyUI's ``optimized_attention_override``.
        traced_in_parts: whether Python around the blocks of ComfyUI's network looks at values, which ends a graph of
            torch.compile: its blocks alone are compiled then.
        protected: for int8: regular expressions of layers that stay in floating point, with the reason; those that many
            families share are in ``quantization/layers.py``.
        full_precision: for Model Precision: parts of the names, with a dot before, of layers that the network hands
            fp32 in any dtype.
        full_precision_if: further parts, each after the attribute of the network that must be true.
    """

    name: str
    networks: tuple[str, ...]
    parts: tuple[str, ...] = ("transformer",)
    attention: tuple[AttentionLayer, ...] = ()
    fused_by_design: bool = False
    override_hook: bool = True
    traced_in_parts: bool = False
    protected: tuple[tuple[str, str], ...] = ()
    full_precision: tuple[str, ...] = ()
    full_precision_if: tuple[tuple[str, str], ...] = ()
