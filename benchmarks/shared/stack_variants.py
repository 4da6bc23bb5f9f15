"""The ways in which stacks.py runs a model: ComfyUI as it is, with its own compile node, and with our nodes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from .nodes import Apply, core_compile, node, reused, tome
from .record import ROOT

sys.path.insert(0, str(ROOT / "tools"))
from comfy_host import checkpoints, transformers  # noqa: E402
from comfy_host.in_process import bootstrap, random_conditioning  # noqa: E402
from comfy_host.unets import unet  # noqa: E402

DEFAULT = "ComfyUI default"


@dataclass(frozen=True)
class Variant:
    """A way to run the model: a dtype, and nodes on top of it."""

    name: str
    nodes: tuple[Apply, ...] = ()
    dtype: torch.dtype | None = None

    def of(self, model: Any) -> Any:
        """Return ``model`` with the variant's nodes."""
        for apply in self.nodes:
            model = apply(model)
        return model


def attention(backend: str) -> Apply:
    """Return what puts Set Attention Processor on a model."""
    return node("PacelineSetAttentionProcessor", backend=backend)


def ours(compiler: str) -> list[Variant]:
    """Return the variants that are compared with ComfyUI as it is, most important first."""
    compiled = node("PacelineCompileUNet", backend=compiler)
    last = node("PacelineCompileUNet", backend=compiler, channels_last=True)
    fused, precision = node("PacelineFuseQKV"), node("PacelineModelPrecision", channels_last=True)
    fast, balanced = tome(preset="fast"), tome(preset="balanced")
    return [
        Variant(DEFAULT),
        Variant("Compile UNet", (compiled,)),
        Variant("ComfyUI TorchCompileModel", (core_compile(compiler),)),
        Variant("Compile UNet + Apply ToMe balanced", (compiled, balanced)),
        Variant("Reuse Steps 0.05", (reused(0.05),)),
        Variant("Compile UNet + Apply ToMe balanced + Reuse Steps 0.05", (compiled, balanced, reused(0.05))),
        Variant("Compile UNet + Apply ToMe fast", (compiled, fast)),
        Variant("Quantize int8 + Compile UNet", (node("PacelineQuantizeInt8"), compiled)),
        Variant("Compile UNet + channels last", (precision, last)),
        Variant("Compile UNet + channels last + Fuse QKV", (precision, last, fused)),
        Variant(
            "Compile UNet + channels last + Fuse QKV + cuDNN attention",
            (precision, last, fused, attention("sdpa_cudnn")),
        ),
        Variant("Apply ToMe fast", (fast,)),
        Variant("Apply ToMe balanced", (balanced,)),
        Variant("Set Attention Processor auto", (attention("auto"),)),
    ]


def recipe(compiler: str) -> list[Variant]:
    """Return the steps of the recipe; the first row is its own starting point."""
    low, fused, int8 = torch.bfloat16, node("PacelineFuseQKV"), node("PacelineQuantizeInt8")
    options = {"mode": "max-autotune-no-cudagraphs", "preset": "diffusion-fast"} if compiler == "inductor" else {}
    compiled, tuned = (node("PacelineCompileUNet", backend=compiler, **more) for more in ({}, options))
    return [
        Variant("fp32, plain attention", (attention("vanilla"),), torch.float32),
        Variant("bf16, plain attention", (attention("vanilla"),), low),
        Variant("bf16, SDPA", (attention("sdpa"),), low),
        Variant("bf16, SDPA, compiled", (attention("sdpa"), compiled), low),
        Variant("bf16, SDPA, compiled, fused projections", (attention("sdpa"), compiled, fused), low),
        Variant("bf16, SDPA, compiled, fused, int8", (attention("sdpa"), compiled, fused, int8), low),
        Variant("bf16, SDPA, compiled with the recipe's options", (attention("sdpa"), tuned), low),
    ]


LAYERS = {"depth": 4, "depth_single_blocks": 8, "mlp_ratio": 4.0, "guidance_embed": True}
WIDE: dict[str, tuple[str, dict[str, Any]]] = {
    "flux": (
        "Flux.1 dev with 4 of 19 double and 8 of 38 single blocks",
        LAYERS | {"hidden_size": 3072, "num_heads": 24, "axes_dim": [16, 56, 56]},
    ),
    "flux-512": (
        "Flux.1 dev with 512 of 3072 channels, 4 of 19 double and 8 of 38 single blocks",
        LAYERS | {"hidden_size": 512, "num_heads": 8, "axes_dim": [16, 24, 24]},
    ),
}
"""Transformers with fewer layers than the real ones: what a person reads, and the sizes of the network.

A step of so wide a network takes as long per layer as that of the real one, and fits beside its variants on one GPU.
The narrower one is for processors.
"""


class Models:
    """The MODELs of a layout by dtype, with the same random weights; of a transformer, ``width`` below 320 is tiny."""

    def __init__(self, layout: str, width: int, on_gpu: bool) -> None:
        bootstrap(cpu=not on_gpu)
        self.layout = layout
        self._make: Callable[..., Any] = partial(checkpoints.tiny_sd15, width=32, context=48)
        if layout in WIDE:
            sizes = WIDE[layout][1] if width >= 320 else {}
            self._make = partial(transformers.build, "flux", device="cuda" if on_gpu else "cpu", **sizes)
        elif layout != "tiny":
            self._make = partial(unet, layout, width)
        self._made: dict[torch.dtype, Any] = {}

    def conditioning(self, seed: int) -> Any:
        """Return random conditioning that fits."""
        if self.layout in WIDE:
            return transformers.conditioning("flux", tokens=256, seed=seed)
        return random_conditioning(next(iter(self._made.values())), seed=seed)

    def latent(self, batch: int, side: int) -> torch.Tensor:
        """Return an empty latent."""
        return torch.zeros(batch, 16 if self.layout in WIDE else 4, side, side)

    def of(self, dtype: torch.dtype) -> Any:
        """Return the MODEL with weights of ``dtype``."""
        if dtype not in self._made:
            self._made[dtype] = self._make(dtype=dtype)
        return self._made[dtype]
