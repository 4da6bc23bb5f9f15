"""Put techniques on the UNet of Stable Diffusion WebUI (AUTOMATIC1111), Forge and their relatives, for one sampling."""

from __future__ import annotations

from .webui_choices import TOOLTIPS
from .webui_run import accelerate, keep_levels
from .webui_technique import TechniqueReport

__all__ = ["TOOLTIPS", "TechniqueReport", "accelerate", "keep_levels"]
