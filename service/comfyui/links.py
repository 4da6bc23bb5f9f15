"""Checks of values from links: ComfyUI compares the names of types only, and lets any value pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ...optimizers.core.errors import InvalidSetting, kind_of
from ...optimizers.in_comfyui.structure.protocols import Latent, ModelPatcher


def wrong_link(name: str, value: object, wanted: str, remedy: str) -> InvalidSetting:
    """Return the error for an input whose value is not of the input's type."""
    return InvalidSetting(f"{name} is given {kind_of(value)}, not a {wanted}.", remedy)


def require_conditioning(name: str, value: object) -> None:
    """Check that ``value`` is a list of pairs of a text's encoding and what belongs to it; `InvalidSetting` if not."""
    fits = isinstance(value, (list, tuple)) and all(
        isinstance(entry, (list, tuple)) and len(entry) == 2 and isinstance(entry[1], Mapping) for entry in value
    )
    if not fits:
        raise wrong_link(name, value, "CONDITIONING", "Connect a node that encodes a prompt, such as CLIP Text Encode.")


def require_latent(name: str, value: object) -> None:
    """Check that ``value`` is a LATENT with at least one picture; `InvalidSetting` if not."""
    remedy = "Connect a node that gives a LATENT, such as Empty Latent Image or VAE Encode."
    samples = value.get("samples") if isinstance(value, Mapping) else None
    if not hasattr(samples, "shape"):
        raise wrong_link(name, value, "LATENT", remedy)
    if isinstance(samples, torch.Tensor) and samples.ndim < 3:  # sound has three axes, pictures four
        raise InvalidSetting(f"{name} is a LATENT of {samples.ndim} axes, which no model samples.", remedy)
    if isinstance(samples, torch.Tensor) and samples.numel() == 0:
        raise InvalidSetting(f"{name} is empty.", "Connect a LATENT with at least one picture.")


def fitting(model: ModelPatcher, latent: Latent) -> torch.Tensor:
    """Return the numbers of a LATENT as ComfyUI's samplers make them fit: an empty one takes any model's channels."""
    import comfy.sample

    samples: torch.Tensor = comfy.sample.fix_empty_latent_channels(
        model, latent["samples"], latent.get("downscale_ratio_spacial"), latent.get("downscale_ratio_temporal")
    )
    return samples


@contextmanager
def mismatch_explained(
    name: str, model: ModelPatcher, samples: torch.Tensor, *prompts: Sequence[Any]
) -> Iterator[None]:
    """Say in a sentence why sampling fails where latent or prompts belong to another model.

    ``name`` is that of the latent's input.
    """
    try:
        yield
    except RuntimeError:
        expected = model.get_model_object("latent_format").latent_channels
        if samples.shape[1] != expected:
            raise InvalidSetting(
                f"{name} has {samples.shape[1]} channels, and this model samples latents of {expected}.",
                "Connect an empty latent, or one that was made with this model and its VAE.",
            ) from None
        takes = model.model.model_config.unet_config.get("context_dim")
        encoded = (entry[0] for prompt in prompts for entry in prompt)
        widths = {text.shape[-1] if isinstance(text, torch.Tensor) else 0 for text in encoded}
        if isinstance(takes, int) and widths - {takes}:
            raise InvalidSetting(
                f"A prompt has {max(widths - {takes})} values for each token, and this model takes {takes}.",
                "Connect prompts that were encoded with this model's own CLIP.",
            ) from None
        raise


def require_decoder(name: str, value: object) -> None:
    """Check that ``value`` decodes latents, or is None; it may be of another pack. `InvalidSetting` if not."""
    # A CLIP decodes too: tokens.
    if value is not None and (not callable(getattr(value, "decode", None)) or hasattr(value, "tokenize")):
        raise wrong_link(name, value, "VAE", "Connect Load VAE to it.")


def require_control_net(name: str, value: object) -> None:
    """Check that ``value`` can control a sampler, or is None; it may be of another pack. `InvalidSetting` if not."""
    if value is not None and not callable(getattr(value, "get_control", None)):
        raise wrong_link(name, value, "CONTROL_NET", "Connect Load ControlNet Model to it.")
