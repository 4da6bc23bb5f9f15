"""Token reduction in diffusers: which way a denoiser gets it."""

from __future__ import annotations

from ....token_merging import TokenMergingSettings
from ..components import Component
from ..unet import is_unet
from .denoiser import DenoiserReduction
from .joint import JointTokenReduction
from .tomesd import TomesdReduction
from .unet import UNetTokenReduction


def token_reduction_for(settings: TokenMergingSettings, component: Component) -> DenoiserReduction:
    """Return Apply ToMe for one denoiser."""
    if getattr(settings, "implementation", "") == "tomesd":
        return TomesdReduction(settings)
    return UNetTokenReduction(settings) if is_unet(component.part) else JointTokenReduction(settings)
