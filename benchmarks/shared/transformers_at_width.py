"""Flux.1 at its true width with random weights, in ComfyUI; fewer layers than the real one.

A step of so wide a network takes as long per layer as that of the real one, and fits beside its variants on one GPU.
One is narrower than that, for processors. Only the text has few channels, those of ``comfy_host.transformers``. Other
models, one block of each, are in models_today.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import torch

from .record import ROOT
from .unets import with_patcher

sys.path.insert(0, str(ROOT / "tools"))
from comfy_host import transformers  # noqa: E402
from comfy_host.checkpoints import _base_model  # noqa: E402
from comfy_host.in_process import bootstrap  # noqa: E402
from comfy_host.weights import fill  # noqa: E402


class Wide(NamedTuple):
    """``name``: what a person reads; ``sizes``: of the network."""

    name: str
    sizes: dict[str, Any]


LAYERS = {"depth": 4, "depth_single_blocks": 8, "mlp_ratio": 4.0, "guidance_embed": True}
WIDE = {
    "flux": Wide(
        "Flux.1 dev with 4 of 19 double and 8 of 38 single blocks",
        LAYERS | {"hidden_size": 3072, "num_heads": 24, "axes_dim": [16, 56, 56]},
    ),
    "flux-512": Wide(
        "Flux.1 dev with 512 of 3072 channels, 4 of 19 double and 8 of 38 single blocks",
        LAYERS | {"hidden_size": 512, "num_heads": 8, "axes_dim": [16, 24, 24]},
    ),
}


def transformer(layout: str, dtype: torch.dtype, cpu: bool, narrow: bool = False, disable_dynamic: bool = False) -> Any:
    """Return a MODEL of ``WIDE``; ``narrow``: as small as in the tests, for a rehearsal."""
    bootstrap(cpu=cpu)
    import comfy.model_management
    import comfy.supported_models

    settings = {**transformers.ALL["flux"].settings, **({} if narrow else WIDE[layout].sizes)}
    base = _base_model(comfy.supported_models.Flux, settings, dtype, "cpu").eval()
    device = comfy.model_management.get_torch_device()
    fill(base.diffusion_model, seed=0, device="cuda" if device.type == "cuda" else "cpu")
    return with_patcher(base, device, transformer, (layout, dtype, cpu, narrow), disable_dynamic)
