"""Settings that only this host has; the others are those of the ComfyUI nodes."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import require_choice


@dataclass(frozen=True)
class FuseQKV:
    """Compute query, key and value of each attention layer in one matrix product: the node Fuse QKV. No settings."""


@dataclass(frozen=True)
class ScheduleOnCPU:
    """Keep the scheduler's timesteps on the CPU, so that no step waits for the GPU to read them. No settings."""


DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Precision:
    """In which dtype to compute.

    Attributes:
        dtype: of all models of the pipeline, text encoders too: ``float32``, ``float16`` or ``bfloat16``.
        vae_dtype: of the VAE; ``same`` as the others. SDXL's VAE needs ``float32`` where the others are ``float16``.

    Raises:
        InvalidSetting: if a value is not allowed.
    """

    dtype: str = "bfloat16"
    vae_dtype: str = "same"

    def __post_init__(self) -> None:
        """Check the values."""
        require_choice("dtype", self.dtype, DTYPES)
        require_choice("vae_dtype", self.vae_dtype, ("same", *DTYPES))
