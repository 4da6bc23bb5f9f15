"""Token reduction in ComfyUI: which models can have it, and the hooks that put it there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .....core.errors import UnsupportedModel
from ....families import families, find_family, not_reduced
from ....token_merging import TokenMergingSettings
from ..model import describe_model, require_model
from ..stack import ModelCall, Technique
from ..unet import is_unet
from .joint import JointTokenReduction
from .unet import UNetTokenReduction

if TYPE_CHECKING:
    from ..protocols import ModelPatcher


def token_reduction_for(
    patcher: ModelPatcher, settings: TokenMergingSettings, node_id: str | None = None
) -> Technique[ModelCall]:
    """Return Apply ToMe for a MODEL.

    Raises:
        UnsupportedModel: if nothing can be reduced in a model of this family.
    """
    require_model(patcher)
    if is_unet(patcher):
        return UNetTokenReduction(patcher, settings, node_id)
    network = patcher.model.diffusion_model
    family = find_family(network)
    if family is not None and family.tokens is not None:
        return JointTokenReduction(patcher, family.tokens, settings, node_id)
    served = ", ".join(family.tokens.models or family.name for family in families() if family.tokens is not None)
    raise UnsupportedModel(
        f"Apply ToMe cannot merge tokens in {describe_model(patcher)}: {not_reduced(network)}.",
        f"Remove the node for this model. It works with UNet models (SD 1.x, SD 2.x, SDXL, SVD) and with {served}.",
    )
