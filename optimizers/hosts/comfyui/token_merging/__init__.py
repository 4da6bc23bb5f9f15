"""Token merging in ComfyUI: which way a MODEL gets it."""

from __future__ import annotations

from .....core.errors import UnsupportedModel
from ....families import families, find_family, not_reduced
from ....token_merging import TokenMergingSettings
from ..evaluations import ComfyTokenMerging
from ..model import describe_model, is_unet, require_model
from ..protocols import ModelPatcher
from .joint import ComfyJointTokenMerging
from .unet import ComfyUNetTokenMerging


def token_merging_for(patcher: ModelPatcher, settings: TokenMergingSettings) -> ComfyTokenMerging:
    """Return Apply ToMe for a MODEL; `UnsupportedModel` if nothing can be merged in it, or not with these settings."""
    require_model(patcher)
    if is_unet(patcher):
        return ComfyUNetTokenMerging(patcher, settings)
    network = patcher.model.diffusion_model
    family = find_family(network)
    if family is not None and family.tokens is not None:
        return ComfyJointTokenMerging(patcher, family.tokens, settings)
    served = ", ".join(one.tokens.models or one.name for one in families() if one.tokens is not None)
    raise UnsupportedModel(
        f"Apply ToMe cannot merge tokens in {describe_model(patcher)}: {not_reduced(network)}.",
        f"Remove the node for this model. It works with UNet models (SD 1.x, SD 2.x, SDXL, SVD) and with {served}.",
    )
