"""Families of models, with the facts that each technique needs, and which one a network or a layer belongs to.

Data, and no host. A record comes before others whose packages hold its classes. ComfyUI is that of 0.30, or of 0.33 for
what came later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Size = tuple[int, int]
"""Rows and columns."""

Projections = tuple[tuple[str, ...], ...]
"""Attributes of a module that are query, key and value and read the same tokens, those of each group together."""


@dataclass(frozen=True)
class Block:
    """One place with self-attention over the image; each host adds how it finds it.

    Attributes:
        name: what a person calls it, e.g. ``input 4.1``.
        number: how many others come before it: part of its random sequence, so ``max_downsample`` must not change it.
        downsample: how many times smaller than the latent its tokens' grid is on each side (1, 2, 4, 8).
    """

    name: str
    number: int
    downsample: int

    def size(self, latent: Size) -> Size:
        """Return rows and columns of tokens. Each step down is a convolution of stride 2, which rounds up."""
        return -(-latent[0] // self.downsample), -(-latent[1] // self.downsample)


def transformer_blocks(unet: Any) -> Iterator[tuple[str, int, int, int, Any, Any]]:
    """Yield each spatial transformer block of a UNet of SD 1.x, SD 2.x or SDXL, in the order of execution.

    As part, row, number in the layer, downsample, layer and block: ldm, sgm, ComfyUI and Forge name all of it alike.
    Not the temporal ones of video UNets (``time_stack``), whose tokens are frames.
    """
    scale = 1
    middle = [] if unet.middle_block is None else [unet.middle_block]  # KOALA-700M has none
    for part, rows in (("input", unet.input_blocks), ("middle", middle), ("output", unet.output_blocks)):
        for row, layers in enumerate(rows):
            for layer in layers.children():
                # resblock_updown: the change of resolution sits inside of the residual block
                resampler = type(layer.h_upd if getattr(layer, "updown", False) else layer).__name__
                scale = scale * 2 if resampler == "Downsample" else scale // 2 if resampler == "Upsample" else scale
                for number, block in enumerate(getattr(layer, "transformer_blocks", ())):
                    yield part, row, number, scale, layer, block


@dataclass(frozen=True)
class Family:
    """Models whose networks are built alike.

    Attributes:
        networks: dotted paths of the exact classes, in ComfyUI and diffusers: a subclass may lay out its tokens in
            another way. A package stands for all classes in it, ``package.Class`` for that class wherever in it.
        parts: names by which diffusers' pipelines have the network.
        attention: for Fuse QKV: attention layers by the dotted path of their exact class, with the attributes of query,
            key and value that can read the same tokens. How a layer calls them need not be known: each result is handed
            over only for the very tokens it was computed from (see ``qkv_fusion``).
        fused_by_design: whether its layers compute query, key and value together already.
        override_hook: whether its attention reaches ComfyUI's ``optimized_attention_override``.
        protected: for int8: regular expressions of layers that stay in floating point, with the reason; those that many
            families share are in ``quantization/layer_choice.py``.
        full_precision: for Model Precision: parts of the names, with a dot before, of layers that the network hands
            fp32 in any dtype.
        full_precision_if: further parts, each after the attribute of the network that must be true.
    """

    name: str
    networks: tuple[str, ...]
    parts: tuple[str, ...] = ("transformer",)
    attention: tuple[tuple[str, Projections], ...] = ()
    fused_by_design: bool = False
    override_hook: bool = True
    protected: tuple[tuple[str, str], ...] = ()
    full_precision: tuple[str, ...] = ()
    full_precision_if: tuple[tuple[str, str], ...] = ()


_QKV = ("to_q", "to_k", "to_v")
_ADDED = ("add_q_proj", "add_k_proj", "add_v_proj")
_OMNIGEN_ATTENTION = ("comfy.ldm.omnigen.omnigen2.Attention", (_QKV,))
_OMNIGEN_PROTECTED = ((r"^ref_image_patch_embedder$|_norm\d\.linear$", "it embeds or modulates"),)
_QWEN_ATTENTION = ("comfy.ldm.qwen_image.model.Attention", (_QKV, _ADDED))

_WAN_FULL_PRECISION = ("patch_embedding",)

FAMILIES: tuple[Family, ...] = (
    Family(
        name="SD 1.x, SD 2.x, SDXL, SVD",
        networks=("comfy.ldm.modules.diffusionmodules.openaimodel.UNetModel", "diffusers.UNet2DConditionModel"),
        parts=("unet",),
        attention=(("comfy.ldm.modules.attention.CrossAttention", (_QKV,)),),
    ),
    Family("Flux", ("comfy.ldm.flux.model.Flux", "diffusers.FluxTransformer2DModel"), fused_by_design=True),
    Family("Chroma", ("comfy.ldm.chroma.model.Chroma",), fused_by_design=True),
    Family(
        name="SD3",
        networks=(
            "comfy.ldm.modules.diffusionmodules.mmdit.OpenAISignatureMMDITWrapper",
            "diffusers.SD3Transformer2DModel",
        ),
        fused_by_design=True,
    ),
    Family(
        name="Qwen-Image",
        networks=("comfy.ldm.qwen_image.model.QwenImageTransformer2DModel",),
        attention=(_QWEN_ATTENTION,),
    ),
    Family(
        name="Qwen-Image 2.1",
        networks=("comfy.ldm.qwen_image21.model.QwenImage21Transformer2DModel",),
        attention=(("comfy.ldm.qwen_image21.model.Attention", (_QKV,)),),
    ),
    Family("Z-Image", ("comfy.ldm.lumina.model.NextDiT",), fused_by_design=True),
    Family(
        name="Wan",
        networks=(
            "comfy.ldm.wan.model.WanModel",
            "comfy.ldm.wan.model.VaceWanModel",
            "comfy.ldm.wan.model.CameraWanModel",
            "comfy.ldm.wan.model.SCAILWanModel",
            "comfy.ldm.wan.model.SCAIL2WanModel",
            "comfy.ldm.wan.model.HumoWanModel",
            "comfy.ldm.wan.model_animate2.WanAnimate2Model",
            "comfy.ldm.wan.model_wandancer.WanDancerModel",
        ),
        parts=("transformer", "transformer_2"),
        attention=(("comfy.ldm.wan.model.WanSelfAttention", (("q", "k", "v"),)),),
        protected=((r"^(audio_proj|music_\w+|head_global)\b", "it prepares the sound or makes the output"),),
        full_precision=_WAN_FULL_PRECISION,
    ),
    Family(
        name="Wan Animate",
        networks=("comfy.ldm.wan.model_animate.AnimateWanModel",),
        protected=((r"^(motion_encoder|face_encoder|face_adapter)\b", "it prepares the face"),),
        full_precision=(".patch_embedding",),
    ),
    Family("HunyuanVideo", ("comfy.ldm.hunyuan_video.model.HunyuanVideo",), fused_by_design=True),
    Family(
        name="MiniMax H3",
        networks=("comfy.ldm.minimax.model.MiniMaxH3Model",),
        fused_by_design=True,
        protected=((r"^(video_patch|audio_patch|condition)_proj$", "it prepares video, sound or text"),),
        full_precision=("video_patch_proj", "audio_patch_proj", "time_embedder", "video_out", "audio_out"),
        full_precision_if=(("use_adaln_curves", "adaln"),),
    ),
    Family(
        name="LTX-Video",
        networks=("comfy.ldm.lightricks.av_model.LTXAVModel", "comfy.ldm.lightricks.model.LTXVModel"),
        attention=(("comfy.ldm.lightricks.model.CrossAttention", (_QKV,)),),
    ),
    Family(
        name="CogVideoX",
        networks=("comfy.ldm.cogvideo.model.CogVideoXTransformer3DModel",),
        attention=(("comfy.ldm.cogvideo.model.CogVideoXBlock", (("q", "k", "v"),)),),
        protected=((r"^(patch_embed|ofs_embedding_linear_\d)\b", "it embeds"),),
        full_precision=("patch_embed",),
    ),
    Family(
        name="Krea 2",
        networks=("comfy.ldm.krea2.model.SingleStreamDiT",),
        attention=(("comfy.ldm.krea2.model.Attention", (("wq", "wk", "wv"),)),),
        protected=((r"^(first|last|txtmlp|txtfusion|tmlp|tproj)\b", "it embeds, modulates or prepares the text"),),
    ),
    Family(
        name="Anima",
        networks=("comfy.ldm.anima.model.Anima", "comfy.ldm.cosmos.predict2.MiniTrainDIT"),
        attention=(("comfy.ldm.cosmos.predict2.Attention", (("q_proj", "k_proj", "v_proj"),)),),
    ),
    Family(
        name="Mage-Flow",
        networks=("comfy.ldm.mage_flow.model.MageFlowTransformer2DModel",),
        attention=(_QWEN_ATTENTION,),
    ),
    Family(
        name="Ideogram 4",
        networks=("comfy.ldm.ideogram4.model.Ideogram4Transformer2DModel",),
        fused_by_design=True,
        protected=((r"^(input_proj|llm_cond_proj)$", "it prepares image or text"),),
    ),
    Family(
        name="HiDream O1",
        networks=("comfy.ldm.hidream_o1.model.HiDreamO1Transformer",),
        attention=(("comfy.text_encoders.llama.Attention", (("q_proj", "k_proj", "v_proj"),)),),
        protected=((r"^(final_layer2|visual)\b", "it makes the pixels, or reads the references"),),
    ),
    Family(
        name="Kandinsky 5",
        networks=("comfy.ldm.kandinsky5.model.Kandinsky5",),
        protected=((r"^(\w+_embeddings|text_transformer_blocks|out_layer)\b", "it prepares text or makes the output"),),
    ),
    Family(
        name="OmniGen2",
        networks=("comfy.ldm.omnigen.omnigen2.OmniGen2Transformer2DModel",),
        attention=(_OMNIGEN_ATTENTION,),
        protected=_OMNIGEN_PROTECTED,
    ),
    Family(
        name="Boogu",
        networks=("comfy.ldm.boogu.model.BooguTransformer2DModel",),
        attention=(
            _OMNIGEN_ATTENTION,
            (
                "comfy.ldm.boogu.model.BooguDoubleStreamProcessor",
                (("img_to_q", "img_to_k", "img_to_v"), ("instruct_to_q", "instruct_to_k", "instruct_to_v")),
            ),
        ),
        protected=_OMNIGEN_PROTECTED,
    ),
    Family("JoyImage", ("comfy.ldm.joyimage.model.JoyImageTransformer3DModel",), fused_by_design=True),
    Family("Lens", ("comfy.ldm.lens.model.LensTransformer2DModel",), fused_by_design=True),
    Family("HunyuanDiT", ("comfy.ldm.hydit",), override_hook=False),
    Family("PixArt", ("comfy.ldm.pixart",), override_hook=False),
    Family("Ernie-Image", ("comfy.ldm.ernie",), override_hook=False),
    Family("SeedVR2", ("comfy.ldm.seedvr",), override_hook=False),
    Family("Other Wan", ("comfy.ldm.wan",), full_precision=_WAN_FULL_PRECISION),
)


def find_family(network: object) -> Family | None:
    """Return the family of a network, or None."""
    path = _path(network)

    def is_at(entry: str) -> bool:
        package, _, name = entry.rpartition(".")
        in_package = path.startswith(f"{package}.") and path.endswith(f".{name}")
        return path == entry or path.startswith(f"{entry}.") or in_package

    return next((family for family in FAMILIES if any(map(is_at, family.networks))), None)


def projections_of(module: object) -> Projections:
    """Return the attributes of query, key and value of an attention layer; none of everything else."""
    return dict(layer for family in FAMILIES for layer in family.attention).get(_path(module), ())


def family_names(chosen: Callable[[Family], object]) -> str:
    """Return the names of the families for which ``chosen`` is true, as a list in one line."""
    return ", ".join(family.name for family in FAMILIES if chosen(family))


def _path(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
