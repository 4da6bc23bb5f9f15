"""All families of models, with the facts that each technique needs. Data, not code.

A record comes before others whose packages hold its classes. ComfyUI is that of 0.30, or of 0.33 for what came later.
"""

from __future__ import annotations

from .family import IMAGE_FIRST, IMAGE_ONLY, TEXT_FIRST, AttentionLayer, Family, TokenLayout
from .videos import EVERY_FRAME, OTHER_WAN, SELF_ATTENTION, VIDEOS

_QKV = ("to_q", "to_k", "to_v")
_ADDED = ("add_q_proj", "add_k_proj", "add_v_proj")
_OMNIGEN_ATTENTION = AttentionLayer(
    "comfy.ldm.omnigen.omnigen2.Attention", (_QKV,), ("hidden_states", "encoder_hidden_states")
)
_OMNIGEN_PROTECTED = ((r"^ref_image_patch_embedder$|_norm\d\.linear$", "it embeds or modulates"),)
_QWEN_ATTENTION = AttentionLayer("comfy.ldm.qwen_image.model.Attention", (_QKV, _ADDED))

_NEWER = "read in ComfyUI 0.38 and not run by the tests of ComfyUI 0.30, which does not have it"
_NOT_AN_IMAGE = "its tokens are not the rows and columns of a picture"
_THINNED_REFERENCES = "are thinned out too, each on a grid of its own"
_KEPT_REFERENCES = "tokens of reference images all stay"

FAMILIES: tuple[Family, ...] = (
    Family(
        name="SD 1.x, SD 2.x, SDXL, SVD",
        networks=("comfy.ldm.modules.diffusionmodules.openaimodel.UNetModel", "diffusers.UNet2DConditionModel"),
        parts=("unet",),
        unets=(
            ("SD 1.x, with inpainting and instruct-pix2pix", "at the latent's size and coarser"),
            ("SD 2.x", "at the latent's size and coarser"),
            ("SDXL and distilled relatives (SSD-1B, Vega, KOALA)", "at 1/2 of the latent's size and coarser"),
            ("SDXL refiner", "at 1/2 of the latent's size and coarser"),
            ("SVD, SV3D", "within each frame, at the latent's size and coarser; attention over time is left alone"),
        ),
        attention=(AttentionLayer("comfy.ldm.modules.attention.CrossAttention", (_QKV,), ("x", "context", "value")),),
    ),
    Family(
        name="Flux",
        networks=("comfy.ldm.flux.model.Flux", "diffusers.FluxTransformer2DModel"),
        tokens=TokenLayout(
            TEXT_FIRST,
            models="Flux.1, Flux.2, LongCat-Image",
            blocks=("double_blocks", "single_blocks"),
            eligible="double and single blocks",
            references=True,
            note=f"reference images (Kontext, Flux.2) {_THINNED_REFERENCES}",
            places="img_ids",
        ),
        fused_by_design=True,
    ),
    Family(
        name="Chroma",
        networks=("comfy.ldm.chroma.model.Chroma",),
        tokens=TokenLayout(TEXT_FIRST, ("double_blocks", "single_blocks"), "double and single blocks"),
        fused_by_design=True,
    ),
    Family(
        name="SD3",
        networks=(
            "comfy.ldm.modules.diffusionmodules.mmdit.OpenAISignatureMMDITWrapper",
            "diffusers.SD3Transformer2DModel",
        ),
        tokens=TokenLayout(
            TEXT_FIRST,
            models="SD3, SD3.5",
            blocks=("joint_blocks",),
            eligible="joint blocks, with the second image attention of SD3.5 medium",
            image_attention=True,
            in_diffusers=IMAGE_FIRST,
        ),
        fused_by_design=True,
    ),
    Family(
        name="Qwen-Image",
        networks=("comfy.ldm.qwen_image.model.QwenImageTransformer2DModel",),
        tokens=TokenLayout(
            TEXT_FIRST,
            blocks=("transformer_blocks",),
            eligible="all blocks",
            references=True,
            note=f"reference images (Edit) {_THINNED_REFERENCES}",
        ),
        attention=(_QWEN_ATTENTION,),
    ),
    Family(
        name="Qwen-Image 2.1",
        networks=("comfy.ldm.qwen_image21.model.QwenImage21Transformer2DModel",),
        tokens=TokenLayout(
            TEXT_FIRST,
            blocks=("transformer_blocks",),
            eligible="all blocks, for queries of the image; text and references never look at the image",
            before=("ref_latents",),
            segments=True,
            patch=(),
            note=f"{_KEPT_REFERENCES}; {_NEWER}",
        ),
        attention=(AttentionLayer("comfy.ldm.qwen_image21.model.Attention", (_QKV,)),),
        traced_in_parts=True,
    ),
    Family(
        name="Z-Image",
        networks=("comfy.ldm.lumina.model.NextDiT",),
        tokens=TokenLayout(
            TEXT_FIRST,
            models="Z-Image, Lumina 2",
            blocks=("layers",),
            eligible="main layers; the two refiners are left alone",
            note="padding after text and image stays; with reference images the calls are left alone",
        ),
        fused_by_design=True,
    ),
    *VIDEOS,
    Family(
        name="Krea 2",
        networks=("comfy.ldm.krea2.model.SingleStreamDiT",),
        tokens=TokenLayout(
            TEXT_FIRST,
            blocks=("blocks",),
            eligible="all blocks; the fusion of the text is left alone",
            patch=("patch",),
            more_calls=("txtlayers",),
            behind=("ref_latents",),
            note=_KEPT_REFERENCES,
        ),
        attention=(AttentionLayer("comfy.ldm.krea2.model.Attention", (("wq", "wk", "wv"),)),),
        protected=((r"^(first|last|txtmlp|txtfusion|tmlp|tproj)\b", "it embeds, modulates or prepares the text"),),
    ),
    Family(
        name="Anima",
        networks=("comfy.ldm.anima.model.Anima", "comfy.ldm.cosmos.predict2.MiniTrainDIT"),
        tokens=TokenLayout(
            IMAGE_ONLY,
            models="Anima, Cosmos Predict 2",
            blocks=("blocks",),
            eligible=SELF_ATTENTION,
            patch=("patch_temporal", "patch_spatial", "patch_spatial"),
            note=EVERY_FRAME,
        ),
        attention=(
            AttentionLayer("comfy.ldm.cosmos.predict2.Attention", (("q_proj", "k_proj", "v_proj"),), ("x", "context")),
        ),
    ),
    Family(
        name="Mage-Flow",
        networks=("comfy.ldm.mage_flow.model.MageFlowTransformer2DModel",),
        tokens=TokenLayout(
            TEXT_FIRST,
            blocks=("transformer_blocks",),
            eligible="all blocks",
            behind=("ref_latents",),
            note=_KEPT_REFERENCES,
        ),
        attention=(_QWEN_ATTENTION,),
    ),
    Family(
        name="Ideogram 4",
        networks=("comfy.ldm.ideogram4.model.Ideogram4Transformer2DModel",),
        tokens=TokenLayout(TEXT_FIRST, blocks=("layers",), eligible="all layers, with and without text", patch=()),
        fused_by_design=True,
        protected=((r"^(input_proj|llm_cond_proj)$", "it prepares image or text"),),
    ),
    Family(
        name="HiDream O1",
        networks=("comfy.ldm.hidream_o1.model.HiDreamO1Transformer",),
        tokens=TokenLayout(
            TEXT_FIRST,
            blocks=("language_model.layers",),
            eligible="all layers, for queries of the image; those of the text never look at the image",
            text=("input_ids",),
            behind=("ref_patches",),
            text_apart=True,
            note=_KEPT_REFERENCES,
        ),
        traced_in_parts=True,
        attention=(AttentionLayer("comfy.text_encoders.llama.Attention", (("q_proj", "k_proj", "v_proj"),)),),
        protected=((r"^(final_layer2|visual)\b", "it makes the pixels, or reads the references"),),
    ),
    Family(
        name="Kandinsky 5",
        networks=("comfy.ldm.kandinsky5.model.Kandinsky5",),
        tokens=TokenLayout(
            IMAGE_ONLY, blocks=("visual_transformer_blocks",), eligible=SELF_ATTENTION, note=EVERY_FRAME
        ),
        protected=((r"^(\w+_embeddings|text_transformer_blocks|out_layer)\b", "it prepares image or text, or draws"),),
    ),
    Family(
        name="OmniGen2",
        networks=("comfy.ldm.omnigen.omnigen2.OmniGen2Transformer2DModel",),
        tokens=TokenLayout(
            TEXT_FIRST,
            blocks=("layers",),
            eligible="main layers; the refiners are left alone",
            before=("ref_latents",),
            note=_KEPT_REFERENCES,
        ),
        attention=(_OMNIGEN_ATTENTION,),
        protected=_OMNIGEN_PROTECTED,
    ),
    Family(
        name="Boogu",
        networks=("comfy.ldm.boogu.model.BooguTransformer2DModel",),
        tokens=TokenLayout(
            TEXT_FIRST,
            blocks=("double_stream_layers", "single_stream_layers"),
            eligible="attention of text and image; refiners and attention of the image alone are left alone",
            before=("ref_latents",),
            note=_KEPT_REFERENCES,
        ),
        attention=(
            _OMNIGEN_ATTENTION,
            AttentionLayer(
                "comfy.ldm.boogu.model.BooguDoubleStreamProcessor",
                (("img_to_q", "img_to_k", "img_to_v"), ("instruct_to_q", "instruct_to_k", "instruct_to_v")),
            ),
        ),
        protected=_OMNIGEN_PROTECTED,
    ),
    Family(
        name="JoyImage",
        networks=("comfy.ldm.joyimage.model.JoyImageTransformer3DModel",),
        tokens=TokenLayout(
            IMAGE_FIRST,
            blocks=("double_blocks",),
            eligible="all blocks",
            behind=("ref_latents",),
            note=_KEPT_REFERENCES,
        ),
        fused_by_design=True,
    ),
    Family(
        name="Lens",
        networks=("comfy.ldm.lens.model.LensTransformer2DModel",),
        tokens=TokenLayout(IMAGE_FIRST, blocks=("transformer_blocks",), eligible="all blocks", patch=()),
        fused_by_design=True,
    ),
    Family("HunyuanDiT", ("comfy.ldm.hydit",), override_hook=False, traced_in_parts=True),
    Family("PixArt", ("comfy.ldm.pixart",), override_hook=False),
    Family("Ernie-Image", ("comfy.ldm.ernie",), override_hook=False),
    Family("SeedVR2", ("comfy.ldm.seedvr",), override_hook=False),
    OTHER_WAN,
    Family("Hunyuan3D", ("comfy.ldm.hunyuan3d", "comfy.ldm.hunyuan3dv2_1"), not_reduced=_NOT_AN_IMAGE),
    Family("Stable Audio", ("comfy.ldm.audio",), not_reduced=_NOT_AN_IMAGE),
    Family("ACE-Step", ("comfy.ldm.ace",), not_reduced=_NOT_AN_IMAGE),
)
