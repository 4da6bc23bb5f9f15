"""Decoding by ComfyUI's VAEs at their real sizes, for stacks.py: as they come, with our nodes, and H3's in int8.

Weights are random. The size of the latent is that of ComfyUI's own template for the model.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pkgutil import resolve_name
from typing import Any
from unittest.mock import patch

import torch

from .nodes import node
from .stack_variants import DEFAULT, Variant, said_by

# isort: split
from comfy_host import vaes
from comfy_host.in_process import bootstrap, use_dynamic_vram
from comfy_host.weights import random_weight


@dataclass(frozen=True)
class Decoder:
    """A VAE of ComfyUI's.

    Attributes:
        name: with the size of its picture or video.
        network: its class in ``comfy.ldm``.
        settings: of the network.
        latent: ``[batch, channels, (frames,) height, width]``.
        quick: the latent of a rehearsal.
        linear: whether it decodes with linear layers and attention.
    """

    name: str
    network: str
    settings: dict[str, Any]
    latent: tuple[int, ...]
    quick: tuple[int, ...]
    linear: bool = False


DECODERS = {
    "vae_sdxl": Decoder(
        "SDXL's VAE, 1024 x 1024", "models.autoencoder:AutoencoderKL",
        {"ddconfig": vaes.KL | {"z_channels": 4}, "embed_dim": 4}, (1, 4, 128, 128), (1, 4, 8, 8),
    ),
    "vae_wan": Decoder(
        "Wan 2.1's and 2.2 14B's VAE, 640 x 640, 81 frames", "wan.vae:WanVAE", vaes.WAN | {"dim": 96, "z_dim": 16},
        (1, 16, 21, 80, 80), (1, 16, 2, 4, 4),
    ),
    "vae_wan_5b": Decoder(
        "Wan 2.2 5B's VAE, 1280 x 704, 41 frames", "wan.vae2_2:WanVAE", vaes.WAN | {"dim": 160, "z_dim": 48},
        (1, 48, 11, 44, 80), (1, 48, 2, 2, 2),
    ),
    "vae_ltx": Decoder(
        "LTX-Video 0.9.5's VAE, 1280 x 704, 121 frames", "lightricks.vae.causal_video_autoencoder:VideoVAE",
        {"version": 2}, (1, 128, 16, 22, 40), (1, 128, 2, 2, 2),
    ),
    "vae_hunyuan": Decoder(
        "HunyuanVideo's VAE, 848 x 480, 37 frames", "models.autoencoder:AutoencoderKL",
        {"ddconfig": vaes.KL | {"z_channels": 16, "conv3d": True, "time_compress": 4}, "embed_dim": 16},
        (1, 16, 10, 60, 106), (1, 16, 2, 4, 4),
    ),
    "vae_h3": Decoder(
        "MiniMax H3's VAE, 864 x 480, 124 frames", "minimax.vae:MiniMaxH3VideoVAE", {}, (1, 24, 37, 30, 54),
        (1, 24, 2, 4, 4), linear=True,
    ),
}  # fmt: skip


def variants(compiler: str, linear: bool) -> list[Variant]:
    """Return the ways to decode; ``linear``: of a decoder of linear layers and attention."""
    compiled, last = (node("PacelineCompileVAE", backend=compiler, channels_last=on) for on in (False, True))
    layout = node("PacelineVAEPrecision", channels_last=True)
    name, first, then = (
        ("torchao int8", _in_int8, compiled) if linear else ("VAE Precision: channels last", layout, last)
    )
    together = Variant(f"{name}, Compile VAE", vae=(first, then))
    return [Variant(DEFAULT), Variant("Compile VAE", vae=(compiled,)), Variant(name, vae=(first,)), together]


def _in_int8(vae: Any) -> Any:
    """Turn the linear layers of a decoder to int8, for good: the rows behind it have them too."""
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    quantize_(vae.first_stage_model.decoder.to("cuda"), Int8DynamicActivationInt8WeightConfig())
    return vae


class Decoding:
    """Decoding of one latent: what it is (``work``), and the ways to do it (``variants``)."""

    together = False

    def __init__(self, options: argparse.Namespace) -> None:
        on_gpu = torch.cuda.is_available()
        bootstrap(cpu=not on_gpu)
        self._decoder = DECODERS[options.layout]
        dynamic = options.dynamic_vram and use_dynamic_vram()
        self.memory = "dynamic VRAM, as ComfyUI's server has it by default" if dynamic else "without dynamic VRAM"
        self.variants = variants(options.compiler, self._decoder.linear)
        device = "cuda" if on_gpu else "cpu"
        self._vae = self._made(device)
        self._changed = self._made(device) if self._decoder.linear else self._vae
        self.work = f"decoding: {self._decoder.name}, {str(self._vae.vae_dtype)[6:]}, random weights"
        self._latent = torch.randn(self._decoder.quick if options.quick else self._decoder.latent)

    def _made(self, device: str) -> Any:
        import comfy.memory_management
        import comfy.sd

        # With dynamic VRAM layers have no weights until a file is read.
        with torch.device("meta"), patch.object(comfy.memory_management, "aimdo_enabled", False):
            network = resolve_name(f"comfy.ldm.{self._decoder.network}")(**self._decoder.settings)
        weights = {
            name: random_weight(name, tensor.shape, 0, device=device).cpu()
            for name, tensor in network.state_dict().items()
            if tensor.is_floating_point()
        }
        dtype = None if device == "cuda" else torch.float32
        return vaes.reloadable(lambda: comfy.sd.VAE(sd=dict(weights), dtype=dtype))

    def dtype(self, variant: Variant) -> torch.dtype:
        """Return in what a variant computes."""
        dtype: torch.dtype = self._vae.vae_dtype
        return dtype

    @contextmanager
    def ready(self, variant: Variant) -> Iterator[Callable[[], torch.Tensor]]:
        """Give what decodes with a variant."""
        with torch.inference_mode():
            vae = variant.of_vae(self._changed if variant.vae else self._vae)
            yield partial(vae.decode, self._latent)
            print(f"{variant.name}: {said_by(vae)}", file=sys.stderr, flush=True)
