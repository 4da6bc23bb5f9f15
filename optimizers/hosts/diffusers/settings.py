"""Settings that only this host has; the others are those of the ComfyUI nodes."""

from __future__ import annotations

from dataclasses import dataclass

from ....core.settings import choice
from ...precision.settings import DTYPES, PrecisionSettings
from ...quantization.settings import QuantizationSettings
from ...step_reuse.settings import StepReuseSettings
from ...token_merging import TokenMergingSettings


@dataclass(frozen=True)
class FuseQKV:
    """Compute query, key and value of each attention layer in one matrix product: the node Fuse QKV. No settings."""


@dataclass(frozen=True)
class ScheduleOnCPU:
    """Keep the scheduler's timesteps on the CPU, so that no step waits for the GPU to read them. No settings."""


@dataclass(frozen=True)
class Precision(PrecisionSettings):
    """In which dtype to compute: the settings of the node Model Precision, and one more.

    ``vae_dtype``: ``same`` as the other models, or one of ``DTYPES``. SDXL's VAE needs ``fp32`` where the others are
    ``fp16``.
    """

    vae_dtype: str = choice("same", ("same", *DTYPES))


@dataclass(frozen=True)
class ReuseSteps(StepReuseSettings):
    """Leave out steps that can be forecast from earlier ones: the settings of the node Reuse Steps."""


@dataclass(frozen=True)
class QuantizeInt8(QuantizationSettings):
    """Which layers are in torchao's int8: the settings of the node Quantize int8. Needs torchao."""


@dataclass(frozen=True)
class TokenMerging(TokenMergingSettings):
    """Merge similar tokens, or leave out keys and values: the settings of the node Apply ToMe."""
