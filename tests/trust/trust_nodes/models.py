"""Small models, made anew for each ``copy``: one that has seen many graphs, and a fresh one.

Their weights are random, but for the demo's trained model.
"""

from __future__ import annotations

from typing import Any, ClassVar

import emoji_model
import torch
from comfy_host import checkpoints, in_process, transformers, vaes
from model_changes import control_net

UNETS = {
    "sd15": lambda seed: checkpoints.tiny_sd15(seed, width=32, context=48),
    "smallest": lambda seed: checkpoints.smallest_unet(seed),
    "sdxl": lambda seed: checkpoints.sdxl_layout(width=32, seed=seed, context=48),
}
TRAINED = "emoji"
FOUR_CHANNELS = (*UNETS, TRAINED)
KINDS = (*FOUR_CHANNELS, *transformers.TRANSFORMERS)
_kept: dict[tuple[str, int], tuple[Any, ...]] = {}
_SEED = ("INT", {"default": 0, "min": 0, "max": 2**32})


class TrustModel:
    """A MODEL with conditioning that fits it. Another ``copy`` is another object with the same weights."""

    RETURN_TYPES = ("MODEL", "CONDITIONING", "CONDITIONING", "CONDITIONING")
    FUNCTION = "make"
    CATEGORY = "trust"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802 - ComfyUI's name
        return {"required": {"kind": (list(KINDS),), "seed": _SEED, "copy": _SEED}}

    def make(self, kind: str, seed: int, copy: int) -> tuple[Any, ...]:
        if copy:
            return self.fresh(kind, seed)
        # The first copy lives as long as the server: ComfyUI itself forgets what the last prompt did not use.
        if (kind, seed) not in _kept:
            _kept[kind, seed] = self.fresh(kind, seed)
        return _kept[kind, seed]

    def fresh(self, kind: str, seed: int) -> tuple[Any, ...]:
        if kind in UNETS:
            model = UNETS[kind](seed)
            return model, *(in_process.random_conditioning(model, seed=which) for which in (1, 2, 3))
        if kind == TRAINED:
            model, encode = emoji_model.load()
            return model, *map(encode, ("red apple", "", "pizza"))
        return transformers.build(kind, seed), *(transformers.conditioning(kind, seed=which) for which in (1, 2, 3))


class TrustVAE:
    """A VAE."""

    RETURN_TYPES = ("VAE",)
    FUNCTION = "make"
    CATEGORY = "trust"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802
        return {"required": {"copy": _SEED}}

    def make(self, copy: int) -> tuple[Any]:
        return (vaes.taesd(),)


class TrustControlNet:
    """A ControlNet for the UNet ``sd15``."""

    RETURN_TYPES = ("CONTROL_NET",)
    FUNCTION = "make"
    CATEGORY = "trust"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802
        return {"required": {"copy": _SEED}}

    def make(self, copy: int) -> tuple[Any]:
        return (control_net(checkpoints.SD15_CONFIG | {"model_channels": 32, "context_dim": 48}),)


class TrustLatent:
    """A latent that fits a kind of model: empty, or random numbers."""

    RETURN_TYPES = ("LATENT",)
    FUNCTION = "make"
    CATEGORY = "trust"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802
        size = ("INT", {"default": 16, "min": 1, "max": 128})
        return {
            "required": {
                "kind": (list(KINDS),),
                "height": size,
                "width": size,
                "batch": ("INT", {"default": 1, "min": 0, "max": 64}),
                "noise": ("BOOLEAN", {"default": False}),
            }
        }

    def make(self, kind: str, height: int, width: int, batch: int, noise: bool) -> tuple[dict[str, torch.Tensor]]:
        if kind in FOUR_CHANNELS:
            samples = torch.zeros(batch, 4, height, width)
        else:
            samples = transformers.latent(kind, height, width, batch)
        if noise:
            samples = torch.randn(samples.shape, generator=torch.Generator().manual_seed(3))
        return ({"samples": samples},)


class TrustMask:
    """The lower half of a picture as a mask."""

    RETURN_TYPES = ("MASK",)
    FUNCTION = "make"
    CATEGORY = "trust"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802
        return {"required": {"upper": ("BOOLEAN", {"default": False})}}

    def make(self, upper: bool) -> tuple[torch.Tensor]:
        mask = torch.zeros(1, 64, 64)
        mask[:, :32] = 1.0
        return (mask if upper else 1.0 - mask,)


class TrustHint:
    """A picture for a ControlNet."""

    RETURN_TYPES = ("IMAGE",)
    FUNCTION = "make"
    CATEGORY = "trust"
    shape: ClassVar[tuple[int, ...]] = (1, 128, 128, 3)

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802
        return {"required": {"seed": _SEED}}

    def make(self, seed: int) -> tuple[torch.Tensor]:
        return (torch.rand(self.shape, generator=torch.Generator().manual_seed(seed)),)
