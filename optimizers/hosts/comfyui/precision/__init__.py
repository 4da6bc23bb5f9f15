"""Model Precision and VAE Precision in ComfyUI."""

from __future__ import annotations

from .model import ModelPrecision, model_precision
from .vae import VAEPrecision, with_precision

__all__ = ["ModelPrecision", "VAEPrecision", "model_precision", "with_precision"]
