"""Small models, made anew for each ``copy``: one that has seen many graphs, and a fresh one.

Their weights are random, but for the demo's trained model.
"""

from __future__ import annotations

from typing import Any

import emoji_model
import torch
from comfy_host import checkpoints, in_process, transformers, vaes
from comfy_host.made_nodes import node

from .others import from_int8_file

UNETS = {
    "sd15": lambda seed: checkpoints.tiny_sd15(seed, width=32, context=48),
    "smallest": lambda seed: checkpoints.smallest_unet(seed),
    "sdxl": lambda seed: checkpoints.sdxl_layout(width=32, seed=seed, context=48),
    "int8": from_int8_file,
}
TRAINED = "emoji"
FOUR_CHANNELS = (*UNETS, TRAINED)
KINDS = (*FOUR_CHANNELS, *transformers.TRANSFORMERS)
_kept: dict[tuple[str, int, int], tuple[Any, ...]] = {}
KEPT = 10**7
"""Copies from this number on live as long as the server, as the copy 0 does."""
_SEED = ("INT", {"default": 0, "min": 0, "max": 2**32})
_SIZE = ("INT", {"default": 16, "min": 1, "max": 128})


@node("TrustModel", "MODEL", *["CONDITIONING"] * 3, kind=(list(KINDS),), seed=_SEED, copy=_SEED)
def model(kind: str, seed: int, copy: int) -> tuple[Any, ...]:
    """A MODEL with conditioning that fits it. Another ``copy`` is another object with the same weights."""
    if (
        0 < copy < KEPT or kind == "int8"
    ):  # which ComfyUI 0.30 cannot load again once it was unloaded outside of inference mode
        return _fresh(kind, seed)
    # These live as long as the server: ComfyUI itself forgets what the last prompt did not use.
    if (kind, seed, copy) not in _kept:
        _kept[kind, seed, copy] = _fresh(kind, seed)
    return _kept[kind, seed, copy]


def _fresh(kind: str, seed: int) -> tuple[Any, ...]:
    if kind in UNETS:
        made = UNETS[kind](seed)
        return made, *(in_process.random_conditioning(made, seed=which) for which in (1, 2, 3))
    if kind == TRAINED:
        made, encode = emoji_model.load()
        return made, *map(encode, ("red apple", "", "pizza"))
    return transformers.build(kind, seed), *(transformers.conditioning(kind, seed=which) for which in (1, 2, 3))


@node("TrustVAE", "VAE", copy=_SEED)
def vae(copy: int) -> tuple[Any]:
    """A VAE."""
    return (vaes.taesd(),)


@node("TrustControlNet", "CONTROL_NET", copy=_SEED)
def controlnet(copy: int) -> tuple[Any]:
    """A ControlNet for the UNet ``sd15``."""
    return (checkpoints.fitting_controlnet(checkpoints.SD15_CONFIG | {"model_channels": 32, "context_dim": 48}),)


@node(
    *("TrustLatent", "LATENT"),
    kind=(list(KINDS),),
    height=_SIZE,
    width=_SIZE,
    batch=("INT", {"default": 1, "min": 0, "max": 64}),
    noise=("BOOLEAN", {"default": False}),
)
def latent(kind: str, height: int, width: int, batch: int, noise: bool) -> tuple[dict[str, torch.Tensor]]:
    """A latent that fits a kind of model: empty, or random numbers."""
    if kind in FOUR_CHANNELS:
        samples = torch.zeros(batch, 4, height, width)
    else:
        samples = transformers.latent(kind, height, width, batch)
    if noise:
        samples = torch.randn(samples.shape, generator=torch.Generator().manual_seed(3))
    return ({"samples": samples},)


_NO = ("BOOLEAN", {"default": False})


@node("TrustMask", "MASK", upper=_NO, optional={"graded": _NO})
def mask(upper: bool, graded: bool = False) -> tuple[torch.Tensor]:
    """The lower half of a picture as a mask, or the upper one; or what grows from none to all of it."""
    made = torch.linspace(1.0, 0.0, 64)[None, :, None].repeat(1, 1, 64)
    made = made if graded else made.round()
    return (made if upper else 1.0 - made,)


@node("TrustHint", "IMAGE", seed=_SEED)
def hint(seed: int) -> tuple[torch.Tensor]:
    """A picture for a ControlNet."""
    return (torch.rand(1, 128, 128, 3, generator=torch.Generator().manual_seed(seed)),)
