"""Put techniques on the UNet of Stable Diffusion WebUI (AUTOMATIC1111), Forge and their relatives, for one sampling."""

from __future__ import annotations

from .run import accelerate
from .technique import TechniqueReport

__all__ = ["TechniqueReport", "accelerate"]
