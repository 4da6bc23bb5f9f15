"""Watches a VAE decode in an ordinary run: it is beside the run, and the VAE decodes as it would without."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...optimizers.in_comfyui.structure.protocols import VAE

_METHODS = ("decode", "decode_tiled")


@dataclass
class Decoding:
    """What a VAE decoded in one run: ``seconds`` of all calls, and the ``shape`` of the latent of the first of them."""

    vae: VAE
    method: str
    shape: torch.Size
    seconds: float

    @property
    def of_pictures(self) -> bool:
        """Whether the latent has no axis of frames."""
        return len(self.shape) == 4

    @property
    def memory(self) -> tuple[float, float]:
        """Bytes that the first call takes if it is not in tiles, by ComfyUI's estimate, and those that are free now."""
        import comfy.model_management

        vae: Any = self.vae
        needed: float = vae.memory_used_decode(self.shape, vae.vae_dtype)
        return needed, comfy.model_management.get_free_memory(vae.device)


def watched(vae: VAE, found: Callable[[Decoding], None]) -> VAE:
    """Return a copy of a VAE that tells of each decoding; what it decodes is the same, bit for bit."""
    result = copy.copy(vae)
    for method in _METHODS:
        setattr(result, method, partial(_timed, vae, method, found))
    return result


def _timed(
    vae: VAE, method: str, found: Callable[[Decoding], None], samples: Tensor, *args: Any, **options: Any
) -> Any:
    started = time.perf_counter()
    result = getattr(vae, method)(samples, *args, **options)  # on the CPU, so the device has come to its end
    seconds = time.perf_counter() - started
    if isinstance(samples, Tensor):
        found(Decoding(vae, method, samples.shape, seconds))
    return result
