"""How the tokens of a MODEL are reduced: UNets in one way, other networks in ways of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .....core.errors import UnsupportedModel
from .....core.phrases import phrase
from ....families import families, not_reduced
from ..model import describe_model, is_unet, require_model
from .unet import UNetTokenReduction

if TYPE_CHECKING:
    from ....token_merging import TokenMergingSettings
    from ..protocols import ModelPatcher
    from ..stack import ModelCall, Technique

OTHER_NETWORKS: list[Callable[[ModelPatcher, TokenMergingSettings], Technique[ModelCall] | None]] = []
"""Ways to reduce tokens in networks that are no UNets, each None for those it does not know. Filled in ``__init__``."""


def token_reduction_for(patcher: ModelPatcher, settings: TokenMergingSettings) -> Technique[ModelCall]:
    """Return Apply ToMe for a MODEL.

    Raises:
        UnsupportedModel: if nothing can be reduced in a model of this family, or not with these settings.
    """
    require_model(patcher)
    if is_unet(patcher):
        return UNetTokenReduction(patcher, settings)
    for make in OTHER_NETWORKS:
        technique = make(patcher, settings)
        if technique is not None:
            return technique
    served = ", ".join(family.tokens.models or family.name for family in families() if family.tokens is not None)
    raise UnsupportedModel(
        phrase(
            "Apply ToMe cannot merge tokens in {model}: {why}.",
            model=describe_model(patcher),
            why=not_reduced(patcher.model.diffusion_model),
        ),
        phrase(
            "Remove the node for this model. It works with UNet models (SD 1.x, SD 2.x, SDXL, SVD) and with {served}.",
            served=served,
        ),
    )
