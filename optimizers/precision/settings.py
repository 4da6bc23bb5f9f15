"""The settings of Model Precision and VAE Precision."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...core.settings import Settings, choice

_NAMES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
DTYPES = ("auto", *_NAMES)


@dataclass(frozen=True)
class PrecisionSettings(Settings):
    """Settings of Model Precision and VAE Precision; `InvalidSetting` if one of them is not allowed.

    Attributes:
        dtype: what the network computes in; ``auto`` is what suits the device.
        fp16_accumulation: whether fp16 matrix products add up in fp16 while the network runs (NVIDIA).
        tf32: whether fp32 matrix products round their inputs to TF32 while the network runs (NVIDIA).
    """

    dtype: str = choice("auto", DTYPES)
    channels_last: bool = False
    fp16_accumulation: bool = False
    tf32: bool = False

    @property
    def torch_dtype(self) -> torch.dtype | None:
        """The chosen dtype, or None for ``auto``."""
        return _NAMES.get(self.dtype)

    def extras(self) -> tuple[str, ...]:
        """Return the choices other than the dtype, in words."""
        names = {"channels last": self.channels_last, "fp16 accumulation": self.fp16_accumulation, "TF32": self.tf32}
        return tuple(name for name, chosen in names.items() if chosen)


def dtype_name(dtype: torch.dtype) -> str:
    """Return the short name of a dtype, e.g. ``bf16``."""
    return next((name for name, found in _NAMES.items() if found == dtype), str(dtype).removeprefix("torch."))


def processor_dtype() -> torch.dtype:
    """Return this processor's quickest dtype: bfloat16 where it has instructions for products in it."""
    names = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    found = any(getattr(torch.cpu, name, lambda: False)() for name in names)
    return torch.bfloat16 if found else torch.float32
