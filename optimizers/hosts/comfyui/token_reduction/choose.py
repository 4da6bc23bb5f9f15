"""Which technique reduces the tokens of which family of models."""

from __future__ import annotations

from typing import Any

from ....errors import UnsupportedModel
from ....token_merging import TokenMergingSettings
from ..stack import Technique
from ..unet import describe_model, is_unet, require_model
from .unet import UNetTokenReduction


def token_reduction_for(patcher: Any, settings: TokenMergingSettings, node_id: str | None = None) -> Technique:
    """Return Apply ToMe for a MODEL.

    Raises:
        UnsupportedModel: if nothing can be reduced in a model of this family.
    """
    require_model(patcher)
    if is_unet(patcher):
        return UNetTokenReduction(patcher, settings, node_id)
    raise UnsupportedModel(
        f"Apply ToMe cannot merge tokens in {describe_model(patcher)}: it has none of the UNet transformer blocks that "
        "token merging was made for.",
        "It works with UNet models (SD 1.x, SD 2.x, SDXL and their relatives); remove the node for this model.",
    )
