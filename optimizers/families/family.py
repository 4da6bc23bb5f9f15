"""The record of a family of models, with a section for each technique. Imports no host."""

from __future__ import annotations

from dataclasses import dataclass

TEXT_FIRST = "joint, text first"
"""One attention over ``[text, image]``, with the same places for queries, keys and values."""

IMAGE_FIRST = "joint, image first"
"""One attention over ``[image, text]``."""

IMAGE_ONLY = "image only (self-attention)"
"""Attention of the image with itself; the text has a cross-attention of its own, which is left alone."""


@dataclass(frozen=True)
class TokenLayout:
    """Where the image's tokens are in attention, of transformers whose keys and values can be fewer.

    Rows and columns are the latent's, divided by the patch size and rounded up. Videos are frame by frame.

    Attributes:
        layout: ``TEXT_FIRST``, ``IMAGE_FIRST`` or ``IMAGE_ONLY``, in ComfyUI.
        blocks: attributes of ComfyUI's network that hold its blocks; parts of the network with dots between.
        eligible: which attention calls are reduced, in words.
        models: models that are served, where they are more or fewer than the family's name says.
        text: tensors ``[batch, tokens, ...]`` whose tokens are the text.
        sounds: names of latents of sound (``ModelCall.shapes``, also all of a list), with the axes whose sizes
            multiplied are their tokens. In joint attention they join the text, otherwise they have their own calls.
        before: names of references and the like whose tokens stand just before the image's and all stay: latents, lists
            of latents, or tokens ``[batch, tokens, channels]``. The network may also leave all of them out.
        behind: names of such that stand just behind the image's.
        whole_frames: how many of the latent's first frames are references and stay whole.
        guides: name of the places of guide frames, ``[batch, 3, tokens, 2]``, which are the last of the latent and
            stay. Calls for a part of the queries, with a mask, are reduced then too.
        image_attention: whether calls with the tokens of the image alone are reduced too.
        text_apart: whether queries of the text have calls of their own that do not reach the hook, so that the calls
            that do have fewer queries than keys.
        segments: whether each part of the sequence has a call of its own, with all keys up to its end. The image is the
            last part; its call alone is reduced.
        frames_apart: whether the queries of each frame have a call of their own, with the keys of all frames and of one
            frame of another video, which stay, behind them.
        patch: attributes of ComfyUI's network with the sides of a patch: one for all sides, or frames, rows, columns;
            none where each place of the latent is a token. An attribute may be None, which is a side of 1.
        more_calls: attributes with the number of tokens of further attention calls, which are not reduced.
        references: whether the tokens of ``ref_latents`` follow those of the image and are thinned out too, picture by
            picture.
        in_diffusers: the layout there, ``TEXT_FIRST`` or ``IMAGE_FIRST``.
        places: argument of diffusers' network with row and column of each token, as ``[tokens, 3]``; where there is
            none, the network is given a latent and its ``config.patch_size`` tells.
    """

    layout: str
    blocks: tuple[str, ...]
    eligible: str
    models: str = ""
    text: tuple[str, ...] = ("c_crossattn",)
    sounds: tuple[tuple[str, tuple[int, ...]], ...] = ()
    before: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    whole_frames: int = 0
    guides: str = ""
    image_attention: bool = False
    text_apart: bool = False
    segments: bool = False
    frames_apart: bool = False
    patch: tuple[str, ...] = ("patch_size",)
    more_calls: tuple[str, ...] = ()
    references: bool = False
    note: str = ""
    in_diffusers: str = TEXT_FIRST
    places: str = ""


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
        tokens: for Apply ToMe; None where no tokens of a transformer can be left out.
        unets: for Apply ToMe: models of the UNet classes, and where they have self-attention.
        not_reduced: why Apply ToMe refuses the family.
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
    tokens: TokenLayout | None = None
    unets: tuple[tuple[str, str], ...] = ()
    not_reduced: str = ""
    attention: tuple[AttentionLayer, ...] = ()
    fused_by_design: bool = False
    override_hook: bool = True
    traced_in_parts: bool = False
    protected: tuple[tuple[str, str], ...] = ()
    full_precision: tuple[str, ...] = ()
    full_precision_if: tuple[tuple[str, str], ...] = ()
