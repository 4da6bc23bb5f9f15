"""The ways in which stacks.py draws: ComfyUI as it comes, with its own nodes, and with ours one on top of the other."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from .nodes import Apply, core_cache, core_compile, node, reused, tome
from .record import ROOT

sys.path.insert(0, str(ROOT / "tests"))
from comfy_host import checkpoints, transformers  # noqa: E402
from comfy_host.in_process import bootstrap, random_conditioning  # noqa: E402

from .unets import unet  # noqa: E402

DEFAULT = "ComfyUI as it comes"


@dataclass(frozen=True)
class Variant:
    """A way to draw: nodes on top of the model and of the VAE.

    Attributes:
        counted: whether the evaluations of the network are counted, because some are left out.
    """

    name: str
    nodes: tuple[Apply, ...] = ()
    vae: tuple[Apply, ...] = ()
    counted: bool = False

    def of(self, model: Any) -> Any:
        """Return ``model`` with the variant's nodes."""
        return _through(self.nodes, model)

    def of_vae(self, vae: Any) -> Any:
        """Return ``vae`` with the variant's nodes."""
        return _through(self.vae, vae)


def _through(nodes: tuple[Apply, ...], target: Any) -> Any:
    for apply in nodes:
        target = apply(target)
    return target


def said_by(*targets: Any) -> str:
    """Return what the nodes on these MODELs and VAEs report of their last run."""
    stacks = [stack for one in targets if (stack := getattr(one, "paceline_stack", None) or _attached(one))]
    found = [(technique.title, technique.last_summary()) for stack in stacks for technique in stack.techniques]
    return "; ".join(f"{title}: {summary.state}, {summary.text}" for title, summary in found)


def _attached(target: Any) -> Any:
    return target.get_attachment("paceline") if hasattr(target, "get_attachment") else None


def recipe(compiler: str, unet: bool) -> list[Variant]:
    """Return the recipe, each row with the nodes of those before it, then what stands alone; most important first.

    Args:
        compiler: backend of torch.compile.
        unet: whether the model is a UNet, which Apply ToMe and Fuse QKV are for.
    """
    attention = node("PacelineSetAttentionProcessor", backend="auto")
    compiled, compiled_vae = (node(f"PacelineCompile{part}", backend=compiler) for part in ("UNet", "VAE"))
    last, last_vae = (node(f"PacelineCompile{part}", backend=compiler, channels_last=True) for part in ("UNet", "VAE"))
    precision, precision_vae = (node(f"Paceline{part}Precision", channels_last=True) for part in ("Model", "VAE"))
    fused, int8, quality = node("PacelineFuseQKV"), node("PacelineQuantizeInt8"), tome(preset="quality")
    easy_cache = core_cache("EasyCache", 0.1)
    base, decoder = (attention, compiled), (compiled_vae,)
    laid_out, laid_out_vae = (attention, precision, last), (precision_vae, last_vae)
    core = core_compile(compiler)
    rows = [
        Variant(DEFAULT),
        Variant("ComfyUI's TorchCompileModel", (core,)),
        Variant("+ Compile UNet and VAE", base, decoder),
        *[
            Variant(f"+ Compile UNet and VAE, Reuse Steps {budget}", (*base, reused(budget)), decoder, counted=True)
            for budget in (0.05, 0.15)
        ],
        Variant("+ Compile UNet", base),
        Variant("ComfyUI's TorchCompileModel, EasyCache 0.1", (core, easy_cache), counted=True),
        Variant("Reuse Steps 0.05", (reused(0.05),), counted=True),
        Variant("ComfyUI's EasyCache 0.1", (easy_cache,), counted=True),
        Variant("+ Set Attention Processor", (attention,)),
        Variant("+ Quantize int8", (attention, int8, compiled), decoder),
    ]
    if unet:
        rows += [
            Variant("Apply ToMe quality", (quality,)),
            Variant("+ Compile UNet and VAE, Apply ToMe quality", (*base, quality), decoder),
            Variant("+ channels last", laid_out, laid_out_vae),
            Variant("+ Fuse QKV", (*laid_out, fused), laid_out_vae),
        ]
    return rows


def alone(unet: bool) -> list[Variant]:
    """Return each technique that is exact or costs the picture, alone; none may take longer than without.

    Args:
        unet: as of `recipe`.
    """
    found: dict[str, Apply] = {
        "as it comes, again": lambda model: model,  # how far the same work is from itself
        "Set Attention Processor": node("PacelineSetAttentionProcessor", backend="auto"),
        "Quantize int8": node("PacelineQuantizeInt8"),
        "Model Precision, channels last": node("PacelineModelPrecision", channels_last=True),
    }
    if unet:
        found["Fuse QKV"] = node("PacelineFuseQKV")
        found["Apply ToMe quality"] = node("PacelineApplyToMe", preset="quality")  # off where its own times say so
        found["Apply ToMe merge 0.5"] = node("PacelineApplyToMe", preset="custom", method="merge", ratio=0.5)
    return [Variant(DEFAULT), *(Variant(name, (apply,)) for name, apply in found.items())]


LARGE = {"flux": {"depth": 19, "depth_single_blocks": 38, "mlp_ratio": 4.0, "guidance_embed": True,
                  "hidden_size": 3072, "num_heads": 24, "axes_dim": [16, 56, 56]},
         "z_image": {"dim": 3840, "n_heads": 30, "n_kv_heads": 30, "axes_dims": [32, 48, 48], "multiple_of": 256,
                     "ffn_dim_multiplier": 8 / 3, "n_layers": 30}}  # fmt: skip
LARGE["flux-512"] = LARGE["flux"] | {
    "hidden_size": 512, "num_heads": 8, "axes_dim": [16, 24, 24], "depth": 4, "depth_single_blocks": 8,
}  # fmt: skip
"""Sizes of transformers: of Flux.1 dev and Z-Image, and a narrow and flat Flux for processors."""
LARGE_NAMES = {
    "flux": "Flux.1 dev",
    "flux-512": "Flux.1 dev with 512 of 3072 channels, 4 of 19 double and 8 of 38 single blocks",
    "z_image": "Z-Image",
}


def named(layout: str, width: int) -> str:
    """Return a layout in words; ``width`` as of `Models`."""
    if layout in LARGE:
        return LARGE_NAMES[layout] + (", made tiny" if width < 320 else "")
    return f"{layout}, {width} channels"


class Models:
    """The MODELs of a layout by dtype, with the same random weights; of a transformer, ``width`` below 320 is tiny."""

    def __init__(self, layout: str, width: int, on_gpu: bool) -> None:
        bootstrap(cpu=not on_gpu)
        self.layout = layout
        self.large = layout in LARGE
        self._kind = layout.split("-")[0]
        self._make: Callable[..., Any] = partial(checkpoints.tiny_sd15, width=32, context=48)
        if self.large:
            sizes = LARGE[layout] if width >= 320 else {}
            self._make = partial(transformers.build, self._kind, device="cuda" if on_gpu else "cpu", **sizes)
        elif layout != "tiny":
            self._make = partial(unet, layout, width)
        self._made: dict[torch.dtype, Any] = {}

    def conditioning(self, seed: int) -> Any:
        """Return random conditioning that fits."""
        if self.large:
            return transformers.conditioning(self._kind, tokens=256, seed=seed)
        return random_conditioning(next(iter(self._made.values())), seed=seed)

    def latent(self, batch: int, side: int) -> torch.Tensor:
        """Return an empty latent."""
        return torch.zeros(batch, 16 if self.large else 4, side, side)

    def of(self, dtype: torch.dtype) -> Any:
        """Return the MODEL with weights of ``dtype``."""
        if dtype not in self._made:
            self._made[dtype] = self._make(dtype=dtype)
        return self._made[dtype]
