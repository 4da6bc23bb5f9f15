"""Names of ComfyUI's nodes and of small models that random graphs are made of."""

from __future__ import annotations

UNETS = ("sd15", "sd15", "sd15", "smallest", "smallest", "sdxl")
"""Kinds of models; those named more often are drawn more often."""
TRANSFORMERS = ("flux", "chroma", "sd3", "sd35_medium", "qwen_image", "lumina2", "z_image", "wan", "hunyuan_video")

UNETS_ONLY = """
FreeU FreeU_V2 SelfAttentionGuidance HyperTile PatchModelAddDownscale TomePatchModel ModelMergeSD1 ModelMergeBlocks
PerturbedAttentionGuidance UNetSelfAttentionMultiply UNetCrossAttentionMultiply UNetTemporalAttentionMultiply
ModelSamplingDiscrete ModelSamplingContinuousEDM
""".split()
"""Nodes that change a MODEL and fail on other models than UNets, or do nothing there, whatever is beside them."""

CORE = [
    *UNETS_ONLY,
    *"""
EasyCache LazyCache APG RescaleCFG ModelMergeSimple ModelMergeSubtract ModelMergeAdd ModelSamplingSD3 ModelSamplingFlux
DifferentialDiffusion CFGZeroStar CFGNorm Mahiro SkipLayerGuidanceDiT SkipLayerGuidanceDiTSimple NAGuidance TCFG FreSca
RenormCFG LoraLoaderModelOnly TorchCompileModel EpsilonScaling ScaleROPE ContextWindowsManual ModelComputeDtype
""".split(),
]
"""Nodes that change a MODEL. Those that a version of ComfyUI lacks are left out."""

SLOW_SAMPLERS = ("dpm_adaptive", "dpm_fast")
SHAPES = """
plain plain img2img hires inpaint regional timed batch two_samplers advanced guider dual_cfg dual_model perp_neg controlnet
""".split()
"""What is done with the model: methods of ``graphs._Builder``."""
LINKS = ("LATENT", "CONDITIONING", "VAE")
"""Types of links, besides models, that are given to inputs which may be left out."""
