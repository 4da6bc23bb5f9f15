"""The families of models whose tokens can be reduced, how they lay them out, and the families that cannot be served.

Data, not code. A transformer is recognised by the exact class of its network: a subclass may lay out its tokens in
another way, and then a regular grid taken out of them would be garbage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

TEXT_FIRST = "joint, text first"
"""One attention over ``[text, image]``, with the same places for queries, keys and values."""

IMAGE_ONLY = "image only (self-attention)"
"""Attention of the image with itself; the text has a cross-attention of its own, which is left alone."""


@dataclass(frozen=True)
class Family:
    """Transformers that hand their attention to ComfyUI's override hook in the same way.

    Rows and columns follow from the latent: its height and width, divided by the patch size and rounded up, because the
    networks pad to whole patches. Videos have frames times rows times columns of them, frame by frame.

    Attributes:
        name: models a user knows.
        networks: dotted paths of the exact classes.
        layout: where the tokens of the image are, ``TEXT_FIRST`` or ``IMAGE_ONLY``.
        patch_size: patch sides as a person reads them; the code asks the network.
        blocks: attributes of the network that hold its blocks.
        eligible: which attention calls are reduced, in words.
        more_text: tensors besides ``c_crossattn`` whose tokens join the text in attention.
        image_attention: whether calls with the tokens of the image alone are reduced too.
        references: whether the tokens of ``ref_latents`` follow those of the image, picture by picture.
        note: what else a user should know.
    """

    name: str
    networks: tuple[str, ...]
    layout: str
    patch_size: str
    blocks: tuple[str, ...]
    eligible: str
    more_text: tuple[str, ...] = ()
    image_attention: bool = False
    references: bool = False
    note: str = ""


FAMILIES: tuple[Family, ...] = (
    Family(
        name="Flux.1, Flux.2, LongCat-Image",
        networks=("comfy.ldm.flux.model.Flux",),
        layout=TEXT_FIRST,
        patch_size="2 x 2 (Flux.2: 1 x 1)",
        blocks=("double_blocks", "single_blocks"),
        eligible="double and single blocks",
        references=True,
        note="reference images (Kontext, Flux.2) are thinned out too, each on a grid of its own",
    ),
    Family(
        name="Chroma",
        networks=("comfy.ldm.chroma.model.Chroma",),
        layout=TEXT_FIRST,
        patch_size="2 x 2",
        blocks=("double_blocks", "single_blocks"),
        eligible="double and single blocks",
    ),
    Family(
        name="SD3, SD3.5",
        networks=("comfy.ldm.modules.diffusionmodules.mmdit.OpenAISignatureMMDITWrapper",),
        layout=TEXT_FIRST,
        patch_size="2 x 2",
        blocks=("joint_blocks",),
        eligible="joint blocks, with the second image attention of SD3.5 medium",
        image_attention=True,
    ),
    Family(
        name="Qwen-Image",
        networks=("comfy.ldm.qwen_image.model.QwenImageTransformer2DModel",),
        layout=TEXT_FIRST,
        patch_size="2 x 2",
        blocks=("transformer_blocks",),
        eligible="all blocks",
        references=True,
        note="reference images (Edit) are thinned out too, each on a grid of its own",
    ),
    Family(
        name="Z-Image, Lumina 2",
        networks=("comfy.ldm.lumina.model.NextDiT",),
        layout=TEXT_FIRST,
        patch_size="2 x 2",
        blocks=("layers",),
        eligible="main layers; the two refiners are left alone",
        note="padding after text and image stays; with reference images the calls are left alone",
    ),
    Family(
        name="Wan 2.1, Wan 2.2 (text and image to video, VACE, Fun Camera)",
        networks=(
            "comfy.ldm.wan.model.WanModel",
            "comfy.ldm.wan.model.VaceWanModel",
            "comfy.ldm.wan.model.CameraWanModel",
        ),
        layout=IMAGE_ONLY,
        patch_size="1 x 2 x 2",
        blocks=("blocks",),
        eligible="self-attention; attention to the text is left alone",
        more_text=("clip_fea",),
        note="rows and columns of each frame are thinned out, every frame stays",
    ),
    Family(
        name="HunyuanVideo, HunyuanVideo 1.5, HunyuanImage 2.1",
        networks=("comfy.ldm.hunyuan_video.model.HunyuanVideo",),
        layout=TEXT_FIRST,
        patch_size="1 x 2 x 2 or 1 x 1 (x 1)",
        blocks=("double_blocks", "single_blocks"),
        eligible="double and single blocks",
        more_text=("txt_byt5", "clip_fea"),
        note="rows and columns of each frame are thinned out, every frame stays",
    ),
)

UNETS: tuple[tuple[str, str], ...] = (
    ("SD 1.x, with inpainting and instruct-pix2pix", "at the latent's size and coarser"),
    ("SD 2.x", "at the latent's size and coarser"),
    ("SDXL and distilled relatives (SSD-1B, Vega, KOALA)", "at 1/2 of the latent's size and coarser"),
    ("SDXL refiner", "at 1/2 of the latent's size and coarser"),
    ("SVD, SV3D", "within each frame, at the latent's size and coarser; attention over time is left alone"),
)
"""Models of ComfyUI's UNet class, and where they have self-attention."""

_NO_HOOK = "its attention does not reach ComfyUI's override hook, so no node can change what it looks at"
_EXTRA = (
    "it puts references, poses, sound or earlier frames among its image tokens, so their places in the picture cannot "
    "be told from the sizes alone"
)
_NOT_AN_IMAGE = "its tokens are not the rows and columns of a picture"

REFUSED: tuple[tuple[str, str, str], ...] = (
    ("HunyuanDiT", "comfy.ldm.hydit", _NO_HOOK),
    ("PixArt", "comfy.ldm.pixart", _NO_HOOK),
    ("Ernie-Image", "comfy.ldm.ernie", _NO_HOOK),
    ("Wan S2V, HuMo, Animate, SCAIL, WanDancer, causal Wan", "comfy.ldm.wan", _EXTRA),
    ("LTX-Video", "comfy.ldm.lightricks", _EXTRA),
    ("Hunyuan3D", "comfy.ldm.hunyuan3d", _NOT_AN_IMAGE),
    ("Stable Audio", "comfy.ldm.audio", _NOT_AN_IMAGE),
    ("ACE-Step", "comfy.ldm.ace", _NOT_AN_IMAGE),
)
"""Families that cannot be served: name, prefix of their modules, reason. Served classes of a module come first."""

NOT_EXAMINED = "where its image tokens are in attention has not been checked, and a wrong guess would draw garbage"
"""Reason for every other network."""


def _path(network: Any) -> str:
    return f"{type(network).__module__}.{type(network).__qualname__}"


def find_family(network: Any) -> Family | None:
    """Return the family of a network, or None if it is not served. Imports nothing of ComfyUI."""
    path = _path(network)
    return next((family for family in FAMILIES if path in family.networks), None)


def refusal(network: Any) -> str:
    """Return why a network that is in no family is not served."""
    path = _path(network)
    matching = (reason for _, prefix, reason in REFUSED if path.startswith(prefix))
    return next(matching, NOT_EXAMINED)


def families_table() -> str:
    """Return the families that Apply ToMe serves and refuses, as a Markdown table."""
    rows = [("Models", "Methods", "Where", "Notes")]
    rows += [(name, "all", f"self-attention {where}", "") for name, where in UNETS]
    rows += [(f.name, "kv_downsample, auto", f"{f.eligible} (tokens: {f.layout})", f.note) for f in FAMILIES]
    rows += [(name, "none", "", reason) for name, _, reason in REFUSED]
    rows.append(("all others", "none", "", NOT_EXAMINED))
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|---|---|---|---|", *lines[1:]])
