"""Compute in another dtype, and get back the very weights that were there before."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from ...activity import Activity, Summary
from .components import CONTROLNET, DENOISER, TEXT, VAE
from .host import Host, Technique
from .patches import Patches
from .settings import Precision


class ComponentPrecision(Technique):
    """Model Precision on one component.

    Casting to fewer bits loses some, so the weights that were there are kept: where they are on a CPU, on an
    accelerator's side in the CPU's memory.
    """

    kind = "precision"
    order = 10
    title = "Model Precision"
    roles = (DENOISER, CONTROLNET, VAE, TEXT)

    def __init__(self, settings: Precision) -> None:
        super().__init__()
        self.settings = settings
        self._text = ""

    def describe(self) -> str:
        """Return what was converted."""
        return self._text

    def attach(self, host: Host, patches: Patches) -> None:
        """Convert weights, except those that the model keeps in float32."""
        role = host.component.role
        name = self.settings.vae_dtype if role == VAE and self.settings.vae_dtype != "same" else self.settings.dtype
        dtype = getattr(torch, name)
        kept = 0
        for tensor, stays in _weights(host.component.part):
            kept += stays
            if stays or tensor.dtype == dtype:
                continue
            original = tensor.data
            tensor.data = original.to(dtype)
            kept_on_cpu = original if original.device.type in ("cpu", "meta") else original.to("cpu")
            patches.on_undo(partial(_put_back, tensor, kept_on_cpu, dtype))
        self._text = f"{host.component.name} in {name}" + (f", {kept} weights in float32" if kept else "")

    def summarize(self, activity: Activity) -> Summary:
        """Return the dtype."""
        return Summary("active", self._text)


def _put_back(tensor: torch.Tensor, original: torch.Tensor, dtype: torch.dtype) -> None:
    """Give ``tensor`` its values back, where it is now; in a dtype that somebody chose since, if so."""
    wanted = original.dtype if tensor.dtype == dtype else tensor.dtype
    tensor.data = original.to(device=tensor.device, dtype=wanted)


def _weights(module: Any) -> Iterator[tuple[torch.Tensor, bool]]:
    """Yield every floating point parameter and buffer, and whether its model wants it in float32."""
    keep = tuple(getattr(module, "_keep_in_fp32_modules", None) or ())
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_floating_point():
            yield tensor, any(part in name.split(".") for part in keep)
