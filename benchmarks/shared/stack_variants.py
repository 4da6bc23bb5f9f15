"""The ways in which stacks.py runs a model: ComfyUI as it is, with its own compile node, and with our nodes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from .record import ROOT
from .transformers_at_width import WIDE, transformer
from .unets import unet

sys.path.insert(0, str(ROOT / "tools"))
from comfy_host import checkpoints, transformers  # noqa: E402
from comfy_host.in_process import bootstrap, random_conditioning  # noqa: E402
from comfy_host.pack import load_nodes  # noqa: E402

Nodes = tuple[tuple[str, dict[str, Any]], ...]
DEFAULT = "ComfyUI default"


@dataclass(frozen=True)
class Variant:
    """A way to run the model: a dtype, and nodes on top of it."""

    name: str
    nodes: Nodes = ()
    dtype: torch.dtype | None = None
    core_compile: bool = False


def tome(preset: str) -> tuple[str, dict[str, Any]]:
    return "PacelineApplyToMe", {"preset": preset, "method": "auto", "ratio": 0.5, "max_downsample": "auto"}


def reused(budget: float) -> tuple[str, dict[str, Any]]:
    return "PacelineReuseSteps", {"budget": budget}


def attention(backend: str) -> tuple[str, dict[str, Any]]:
    return "PacelineSetAttentionProcessor", {"backend": backend}


def ours(compiler: str) -> list[Variant]:
    """Return the variants that are compared with ComfyUI as it is, most important first."""
    compiled = ("PacelineCompileUNet", {"backend": compiler})
    last = ("PacelineCompileUNet", {"backend": compiler, "channels_last": True})
    fused, precision = ("PacelineFuseQKV", {}), ("PacelineModelPrecision", {"channels_last": True})
    return [
        Variant(DEFAULT),
        Variant("Compile UNet", (compiled,)),
        Variant("ComfyUI TorchCompileModel", core_compile=True),
        Variant("Compile UNet + Apply ToMe balanced", (compiled, tome("balanced"))),
        Variant("Reuse Steps 0.05", (reused(0.05),)),
        Variant("Compile UNet + Apply ToMe balanced + Reuse Steps 0.05", (compiled, tome("balanced"), reused(0.05))),
        Variant("Compile UNet + Apply ToMe fast", (compiled, tome("fast"))),
        Variant("Quantize int8 + Compile UNet", (("PacelineQuantizeInt8", {}), compiled)),
        Variant("Compile UNet + channels last", (precision, last)),
        Variant("Compile UNet + channels last + Fuse QKV", (precision, last, fused)),
        Variant(
            "Compile UNet + channels last + Fuse QKV + cuDNN attention",
            (precision, last, fused, attention("sdpa_cudnn")),
        ),
        Variant("Apply ToMe fast", (tome("fast"),)),
        Variant("Apply ToMe balanced", (tome("balanced"),)),
        Variant("Set Attention Processor auto", (attention("auto"),)),
    ]


def recipe(compiler: str) -> list[Variant]:
    """Return the steps of the recipe; the first row is its own starting point."""
    low = torch.bfloat16
    compiled = ("PacelineCompileUNet", {"backend": compiler})
    tuned = (
        "PacelineCompileUNet",
        {"backend": compiler, "mode": "max-autotune-no-cudagraphs", "preset": "diffusion-fast"},
    )
    if compiler != "inductor":
        tuned = compiled  # its options are inductor's
    fused = ("PacelineFuseQKV", {})
    return [
        Variant("fp32, plain attention", (attention("vanilla"),), torch.float32),
        Variant("bf16, plain attention", (attention("vanilla"),), low),
        Variant("bf16, SDPA", (attention("sdpa"),), low),
        Variant("bf16, SDPA, compiled", (attention("sdpa"), compiled), low),
        Variant("bf16, SDPA, compiled, fused projections", (attention("sdpa"), compiled, fused), low),
        Variant(
            "bf16, SDPA, compiled, fused, int8", (attention("sdpa"), compiled, fused, ("PacelineQuantizeInt8", {})), low
        ),
        Variant("bf16, SDPA, compiled with the recipe's options", (attention("sdpa"), tuned), low),
    ]


class Models:
    """The MODELs of a layout by dtype, with the same random weights."""

    def __init__(self, layout: str, width: int, on_gpu: bool) -> None:
        self.layout = layout
        self._make: Callable[[torch.dtype], Any] = _tiny
        if layout in WIDE:
            self._make = partial(transformer, layout, cpu=not on_gpu, narrow=width < 320)
        elif layout != "tiny":
            self._make = partial(unet, layout, width, cpu=not on_gpu)
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
            self._made[dtype] = self._make(dtype)
        return self._made[dtype]


def _tiny(dtype: torch.dtype) -> Any:
    bootstrap(cpu=not torch.cuda.is_available())
    return checkpoints.tiny_sd15(width=32, context=48, dtype=dtype)


def with_nodes(model: Any, variant: Variant, compiler: str) -> Any:
    """Return ``model`` with the variant's nodes."""
    from comfy_api.torch_helpers import set_torch_compile_wrapper
    from comfy_extras.nodes_easycache import EasyCacheNode

    known = {**load_nodes(), "EasyCache": EasyCacheNode}
    for name, inputs in variant.nodes:
        defaults = {
            entry.id: entry.default for entry in known[name].define_schema().inputs if hasattr(entry, "default")
        }
        values = {key: value for key, value in (defaults | inputs).items() if value is not None}
        model = known[name].execute(**{**values, "model": model}).args[0]
    if variant.core_compile:
        # What its node does, with a backend that the node does not offer where a rehearsal wants one.
        model = model.clone()
        set_torch_compile_wrapper(model=model, backend=compiler)
    return model
