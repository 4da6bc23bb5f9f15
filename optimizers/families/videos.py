"""The families of networks for videos. Data, not code."""

from __future__ import annotations

from .family import IMAGE_ONLY, TEXT_FIRST, AttentionLayer, Family, TokenLayout

EVERY_FRAME = "rows and columns of each frame are thinned out, every frame stays"
SELF_ATTENTION = "self-attention; attention to the text is left alone"

_FULL_PRECISION = ("patch_embedding",)
_PROTECTED = ((r"^(audio_proj|music_\w+|head_global)\b", "it prepares the sound, or draws"),)

VIDEOS: tuple[Family, ...] = (
    Family(
        name="Wan",
        networks=(
            "comfy.ldm.wan.model.WanModel",
            "comfy.ldm.wan.model.VaceWanModel",
            "comfy.ldm.wan.model.CameraWanModel",
            "comfy.ldm.wan.model.SCAILWanModel",
            "comfy.ldm.wan.model.SCAIL2WanModel",
            "comfy.ldm.wan.model_wandancer.WanDancerModel",
        ),
        parts=("transformer", "transformer_2"),
        tokens=TokenLayout(
            IMAGE_ONLY,
            models="Wan 2.1, Wan 2.2 (text and image to video, VACE, Fun Camera, SCAIL, WanDancer)",
            blocks=("blocks",),
            eligible=SELF_ATTENTION,
            text=("c_crossattn", "clip_fea", "clip_fea_ref"),
            before=("reference_latent",),
            behind=("time_dim_concat", "context_latents", "pose_latents"),
            note=f"{EVERY_FRAME}; references and poses stay whole",
        ),
        attention=(
            AttentionLayer("comfy.ldm.wan.model.WanSelfAttention", (("q", "k", "v"),)),
            AttentionLayer("comfy.ldm.wan.model.WanT2VCrossAttention", (("k", "v"),)),
            AttentionLayer("comfy.ldm.wan.model.WanI2VCrossAttention", (("k", "v"), ("k_img", "v_img"))),
        ),
        protected=_PROTECTED,
        full_precision=_FULL_PRECISION,
    ),
    Family(
        name="Wan Animate",
        networks=("comfy.ldm.wan.model_animate.AnimateWanModel",),
        tokens=TokenLayout(
            IMAGE_ONLY,
            blocks=("blocks",),
            eligible="self-attention; attention to text and face is left alone",
            text=("c_crossattn", "clip_fea"),
            whole_frames=1,
            note=f"{EVERY_FRAME}; the first frame, which is the reference, stays whole",
        ),
        protected=((r"^(motion_encoder|face_encoder|face_adapter)\b", "it prepares the face"),),
        full_precision=(".patch_embedding",),
    ),
    Family(
        name="Wan Animate 2",
        networks=("comfy.ldm.wan.model_animate2.WanAnimate2Model",),
        tokens=TokenLayout(
            IMAGE_ONLY,
            blocks=("blocks",),
            eligible="self-attention of each frame; attention to the text, and of the poses, is left alone",
            text=("c_crossattn", "clip_fea"),
            whole_frames=1,
            frames_apart=True,
            note=f"{EVERY_FRAME}; the first frame, which is the reference, and poses stay whole",
        ),
        protected=_PROTECTED,
        full_precision=_FULL_PRECISION,
    ),
    Family(
        name="Wan HuMo",
        networks=("comfy.ldm.wan.model.HumoWanModel",),
        tokens=TokenLayout(
            IMAGE_ONLY,
            blocks=("blocks",),
            eligible="self-attention; attention to text and sound is left alone",
            behind=("reference_latent",),
            note=f"{EVERY_FRAME}; references stay whole",
        ),
        protected=_PROTECTED,
        full_precision=_FULL_PRECISION,
    ),
    Family(
        name="HunyuanVideo",
        networks=("comfy.ldm.hunyuan_video.model.HunyuanVideo",),
        tokens=TokenLayout(
            TEXT_FIRST,
            models="HunyuanVideo, HunyuanVideo 1.5, HunyuanImage 2.1",
            blocks=("double_blocks", "single_blocks"),
            eligible="double and single blocks",
            text=("c_crossattn", "txt_byt5", "clip_fea"),
            note=EVERY_FRAME,
        ),
        fused_by_design=True,
    ),
    Family(
        name="MiniMax H3",
        networks=("comfy.ldm.minimax.model.MiniMaxH3Model",),
        tokens=TokenLayout(
            TEXT_FIRST,
            blocks=("blocks",),
            eligible="all blocks; sound, key frames and references stay",
            sounds=(("x[1]", (-2, -1)), ("minimax_payload.cond_audio_latents", (-2, -1))),
            before=("minimax_payload.cond_video_latents",),
            note=EVERY_FRAME,
        ),
        fused_by_design=True,
        traced_in_parts=True,
        protected=((r"^(video_patch|audio_patch|condition)_proj$", "it prepares video, sound or text"),),
        full_precision=("video_patch_proj", "audio_patch_proj", "time_embedder", "video_out", "audio_out"),
        full_precision_if=(("use_adaln_curves", "adaln"),),
    ),
    Family(
        name="LTX-Video",
        networks=("comfy.ldm.lightricks.av_model.LTXAVModel", "comfy.ldm.lightricks.model.LTXVModel"),
        tokens=TokenLayout(
            IMAGE_ONLY,
            models="LTX-2, LTX-Video",
            blocks=("transformer_blocks",),
            eligible="self-attention of the video; sound and attention between video, sound and text are left alone",
            sounds=(("x[1]", (2,)), ("ref_audio.tokens", (1,))),
            guides="keyframe_idxs",
            patch=(),
            note=f"{EVERY_FRAME}; guide frames stay whole",
        ),
        attention=(
            AttentionLayer("comfy.ldm.lightricks.model.CrossAttention", (("to_q", "to_k", "to_v"),), ("x", "context")),
        ),
        traced_in_parts=True,
    ),
    Family(
        name="CogVideoX",
        networks=("comfy.ldm.cogvideo.model.CogVideoXTransformer3DModel",),
        tokens=TokenLayout(
            TEXT_FIRST,
            models="CogVideoX, VOID",
            blocks=("blocks",),
            eligible="all blocks",
            patch=("patch_size_t", "patch_size", "patch_size"),
            note=EVERY_FRAME,
        ),
        attention=(AttentionLayer("comfy.ldm.cogvideo.model.CogVideoXBlock", (("q", "k", "v"),)),),
        protected=((r"^(patch_embed|ofs_embedding_linear_\d)\b", "it embeds"),),
        full_precision=("patch_embed",),
    ),
)

OTHER_WAN = Family(
    "Wan S2V, causal Wan",
    ("comfy.ldm.wan",),
    not_reduced="poses or earlier frames are among its keys, and the sizes alone do not tell how many",
    full_precision=_FULL_PRECISION,
)
"""All other classes of Wan's package: a record for after those above."""
