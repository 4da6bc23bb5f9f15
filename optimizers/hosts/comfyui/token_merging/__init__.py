"""Token merging in ComfyUI."""

from __future__ import annotations

from .....core.errors import UnsupportedModel
from ....families import find_family
from ....token_merging import TokenMergingSettings
from ....token_merging.policy import no_unet
from ..structure.model import describe_model, is_unet, require_model
from ..structure.protocols import ModelPatcher
from .unet import ComfyTokenMerging


def token_merging_for(patcher: ModelPatcher, settings: TokenMergingSettings) -> ComfyTokenMerging:
    """Return Apply ToMe for a MODEL; `UnsupportedModel` if it has no UNet, or no block would be reached."""
    require_model(patcher)
    if not is_unet(patcher):
        raise _refusal(patcher)
    return ComfyTokenMerging(patcher, settings)


def _refusal(patcher: ModelPatcher) -> UnsupportedModel:
    family = find_family(patcher.model.diffusion_model)
    attention = "" if family is not None and not family.override_hook else ", Set Attention Processor"
    return no_unet(describe_model(patcher), f"Reuse Steps{attention} and Compile UNet")
