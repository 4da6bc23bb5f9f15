"""Nodes of ComfyUI and of other packs that do what one of ours does: ours is not tried beside them."""

from __future__ import annotations

_COMPILE = (
    "TorchCompileModel",
    "ModelCompile+",  # cubiq/ComfyUI_essentials
    # kijai/ComfyUI-KJNodes
    "TorchCompileModelAdvanced",
    "TorchCompileModelFluxAdvanced",
    "TorchCompileModelFluxAdvancedV2",
    "TorchCompileModelWanVideo",
    "TorchCompileModelWanVideoV2",
    "TorchCompileModelQwenImage",
    "TorchCompileModelHyVideo",
    "TorchCompileLTXModel",
    "TorchCompileCosmosModel",
)

DO_WHAT_OURS_DOES = {
    "TomePatchModel": "PacelineApplyToMe",
    "ToDoPatchModel": "PacelineApplyToMe",  # ethansmith2000/comfy-todo
    "EasyCache": "PacelineReuseSteps",
    "LazyCache": "PacelineReuseSteps",
    "WanVideoTeaCacheKJ": "PacelineReuseSteps",
    "PathchSageAttentionKJ": "PacelineSetAttentionProcessor",
    "PatchFlashAttentionKJ": "PacelineSetAttentionProcessor",
    **dict.fromkeys(_COMPILE, "PacelineCompileUNet"),
}
"""Our node by the other's type. Only what changes a MODEL: nothing else is tried."""
