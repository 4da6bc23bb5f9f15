"""The families of Wan's networks. Data, not code."""

from __future__ import annotations

from .family import IMAGE_ONLY, AttentionLayer, Family, TokenLayout
from .notes import EVERY_FRAME, SELF_ATTENTION

_FULL_PRECISION = ("patch_embedding",)
_PROTECTED = ((r"^(audio_proj|music_\w+|head_global)\b", "it prepares the sound, or draws"),)

WAN: tuple[Family, ...] = (
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
)

OTHER_WAN = Family(
    "Wan S2V, Wan Animate 2, causal Wan",
    ("comfy.ldm.wan",),
    not_reduced="poses or earlier frames are among its keys, and the sizes alone do not tell how many",
    full_precision=_FULL_PRECISION,
)
"""All other classes of Wan's package: a record for after those above."""
