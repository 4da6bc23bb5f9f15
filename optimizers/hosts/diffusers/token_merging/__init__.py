"""Token merging in diffusers: which way a denoiser gets it."""

from __future__ import annotations

from ....token_merging import TokenMergingSettings
from ..components import Component
from ..unet import is_unet
from .denoiser import PipelineTokenMerging
from .joint import PipelineJointTokenMerging
from .tomesd import TomesdMerging
from .unet import PipelineUNetTokenMerging


def token_merging_for(settings: TokenMergingSettings, component: Component) -> PipelineTokenMerging:
    """Return Apply ToMe for one denoiser; `PacelineError` if it cannot be merged in, or not with these settings."""
    if getattr(settings, "implementation", "") == "tomesd":
        return TomesdMerging(settings, component)
    unet = is_unet(component.part)
    return PipelineUNetTokenMerging(settings, component) if unet else PipelineJointTokenMerging(settings, component)
