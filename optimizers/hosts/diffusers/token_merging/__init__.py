"""Token merging in diffusers: which way a denoiser gets it."""

from __future__ import annotations

from ....token_merging import TokenMergingSettings
from ..components import Component
from .denoiser import PipelineTokenMerging
from .tomesd import TomesdMerging
from .unet import PipelineUNetTokenMerging


def token_merging_for(settings: TokenMergingSettings, component: Component) -> type[PipelineTokenMerging]:
    """Return the class of Apply ToMe for one denoiser."""
    if getattr(settings, "implementation", "") == "tomesd":
        return TomesdMerging
    return PipelineUNetTokenMerging
