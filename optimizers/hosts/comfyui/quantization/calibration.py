"""What the linear layers of a MODEL are given: how many tokens, and what is in them.

Both come from running a second model that nobody else has (see ``second_model``), so that hooks on its layers disturb
nobody. Without a prompt it is made of ``meta`` tensors: shapes run through it, in no time and without memory.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .....core.activity import Activity, Summary
from ..unet import is_unet
from ..weight_clone import Plan, build_second_model
from ..weight_swap import WeightTechnique, swap_weights

KEPT_TOKENS = 128
"""Tokens of each layer that are kept for measuring its error."""


@dataclass
class Observations:
    """What was seen: rows per call by layer name, and some of the rows themselves after a real pass."""

    tokens: dict[str, int] = field(default_factory=dict)
    samples: dict[str, Tensor] = field(default_factory=dict)
    source: str = ""


class _Private(WeightTechnique):
    """A second model for watching."""

    kind = "calibration"
    title = "Calibration"

    def __init__(self, meta: bool) -> None:
        super().__init__()
        self.meta = meta

    def convert_tensor(self, name: str, tensor: Tensor, plan: Plan) -> Tensor:
        """Keep the shape only, if that is all that is wanted."""
        return tensor.to("meta") if self.meta else tensor

    def describe(self) -> str:
        """Never shown."""
        return "watching"

    def summarize(self, activity: Activity) -> Summary:
        """Never shown."""
        return Summary("waiting", "watching")


def _watch(network: Any, seen: Observations, samples: bool) -> None:
    def watch(name: str, module: Any) -> None:
        def hook(_: Any, args: tuple[Any, ...]) -> None:
            rows = args[0].reshape(-1, args[0].shape[-1])
            seen.tokens[name] = max(len(rows), seen.tokens.get(name, 0))
            if samples and name not in seen.samples:
                seen.samples[name] = rows[:: max(1, len(rows) // KEPT_TOKENS)][:KEPT_TOKENS].to("cpu", torch.float32)

        module.register_forward_pre_hook(hook)

    for name, module in network.named_modules():
        if isinstance(module, torch.nn.Linear):
            watch(name, module)


def typical_latent(patcher: Any) -> tuple[int, int]:
    """Return the latent's height and width that a UNet was trained for."""
    return (128, 128) if getattr(patcher.model, "adm_channels", 0) else (64, 64)


def observe_shapes(patcher: Any, size: tuple[int, int]) -> Observations:
    """Return how many tokens each layer of a UNet is given for a latent of ``size``, with guidance (batch of two).

    For other families, and where shapes alone cannot run through the network, the result is empty.
    """
    seen = Observations()
    if not is_unet(patcher):
        return seen
    base = build_second_model(patcher, [_Private(meta=True)])
    _watch(base.diffusion_model, seen, samples=False)
    config = base.model_config.unet_config
    dtype = base.get_dtype_inference()

    def shape(*sizes: int) -> Tensor:
        return torch.empty(*sizes, device="meta", dtype=dtype)

    inputs = {
        "x": shape(2, config["in_channels"], *size),
        "timesteps": torch.empty(2, device="meta"),
        "context": shape(2, 77, config["context_dim"]),
        "y": shape(2, base.adm_channels) if base.adm_channels else None,
        "transformer_options": {"optimized_attention_override": _shape_of_attention},
    }
    try:
        with torch.inference_mode():
            base.diffusion_model(**inputs)
    except (RuntimeError, NotImplementedError, TypeError, KeyError, ValueError) as error:
        logging.info("Paceline: token counts are estimated, shapes alone do not run through this UNet: %s", error)
        return Observations()
    seen.source = f"a latent of {size[1]} x {size[0]}"
    return seen


def _shape_of_attention(func: Any, q: Tensor, *args: Any, skip_reshape: bool = False, **kwargs: Any) -> Tensor:
    return q.transpose(1, 2).flatten(2) if skip_reshape else q


def observe_run(patcher: Any, conditioning: Any, latent: Tensor) -> Observations:
    """Return what the layers are given in one real sampling step from pure noise, with guidance.

    Args:
        patcher: a MODEL, with its LoRAs.
        conditioning: a CONDITIONING.
        latent: ``[batch, channels, height, width]``, for its size.
    """
    import comfy.sample

    seen = Observations(source="one sampling step with the connected conditioning")
    clone = swap_weights(patcher, (_Private(meta=False),))
    _watch(clone.model.diffusion_model, seen, samples=True)
    noise = comfy.sample.prepare_noise(latent, 0)
    with torch.inference_mode():
        comfy.sample.sample(
            clone, noise, 1, 2.0, "euler", "simple", conditioning, conditioning, latent, disable_pbar=True, seed=0
        )
    return seen
