"""Names of ComfyUI's nodes and of small models that random graphs are made of."""

from __future__ import annotations


def _names(text: str) -> list[str]:
    return text.split()


UNETS = _names("sd15 sd15 sd15 sd15 emoji smallest smallest smallest smallest sdxl int8")
"""Kinds of models; those named more often are drawn more often. SDXL takes half a minute. emoji is a trained model,
int8 one as it is loaded from a quantised file."""
TRANSFORMERS = _names("flux chroma sd3 sd35_medium qwen_image lumina2 z_image wan hunyuan_video")
WIDER = _names("flux2 wan_i2v wan_vace wan_camera hunyuan_video_15 hunyuan_image")
"""Further kinds, whose networks are variants of those above."""

UNETS_ONLY = _names("""
FreeU FreeU_V2 SelfAttentionGuidance HyperTile PatchModelAddDownscale TomePatchModel ModelMergeSD1 ModelMergeBlocks
PerturbedAttentionGuidance UNetSelfAttentionMultiply UNetCrossAttentionMultiply UNetTemporalAttentionMultiply
ModelSamplingDiscrete ModelSamplingContinuousEDM TrustCopiedOptions TrustCouple
TrustHeldTokens TrustLayers
""")
"""Nodes that change a MODEL and fail on other models than UNets, or do nothing there, whatever is beside them."""

CORE = UNETS_ONLY + _names("""
EasyCache LazyCache APG RescaleCFG ModelMergeSimple ModelMergeSubtract ModelMergeAdd ModelSamplingSD3 ModelSamplingFlux
DifferentialDiffusion CFGZeroStar CFGNorm Mahiro SkipLayerGuidanceDiT SkipLayerGuidanceDiTSimple NAGuidance TCFG FreSca
RenormCFG LoraLoaderModelOnly TorchCompileModel EpsilonScaling ScaleROPE ModelComputeDtype ContextWindowsManual
TrustSeveralCalls TrustCache LoraLoaderBypassModelOnly
""")
"""Nodes that change a MODEL. Those that a version of ComfyUI lacks are left out; those of Trust do what packs do."""

SHAPES = _names("""
plain plain img2img hires inpaint regional timed batch two_samplers advanced guider dual_cfg dual_model perp_neg
controlnet rising resizing one_for_two
""")
"""What is done with the model: methods of ``building.Builder``."""
TWO_CHAINS = ("hires", "two_samplers", "advanced", "dual_model")
LINKS = ("LATENT", "CONDITIONING", "VAE")
"""Types of links, besides models, that are given to inputs which may be left out."""
