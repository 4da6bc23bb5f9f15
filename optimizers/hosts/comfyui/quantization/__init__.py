"""Quantize int8 in ComfyUI: which layers of a MODEL, on a second BaseModel in ComfyUI's int8 format, and to a file."""

from __future__ import annotations

from .prepare import int8_gains, quantize
from .save import save_int8_model
from .technique import Int8Quantization

__all__ = ["Int8Quantization", "int8_gains", "quantize", "save_int8_model"]
