"""Put techniques on the UNet of Stable Diffusion WebUI (AUTOMATIC1111), Forge and their relatives, for one sampling."""

from __future__ import annotations

from .run import accelerate, keep_levels
from .technique import Said

__all__ = ["Said", "accelerate", "keep_levels"]
