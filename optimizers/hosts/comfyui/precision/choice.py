"""What the two precision nodes decide alike, for a MODEL and for a VAE."""

from __future__ import annotations

import torch

from .....core.errors import BackendUnavailable, InvalidSetting, UnsupportedModel
from ....precision import PrecisionSettings, missing
from ....precision.settings import dtype_name, processor_dtype


def choose_dtype(
    settings: PrecisionSettings,
    what: str,
    device: torch.device,
    before: torch.dtype,
    supported: tuple[torch.dtype, ...] | None,
) -> torch.dtype:
    """Return what to compute in.

    Args:
        settings: of the node.
        what: the object, as a person calls it.
        device: where it runs.
        before: what it computes in now.
        supported: what it works in; None if it does not say.

    Raises:
        InvalidSetting: if it does not work in the chosen dtype.
        BackendUnavailable: if the device has no such arithmetic.
    """
    dtype = settings.torch_dtype or (processor_dtype() if device.type == "cpu" else before)
    if supported is not None and dtype not in supported:
        if settings.torch_dtype is not None:
            raise InvalidSetting(
                f"dtype is {settings.dtype}, in which a {what} does not work: its numbers get too large or too small.",
                f"Choose auto or one of: {_names(supported)}.",
            )
        dtype = before
    found = missing(settings, device, dtype)
    if found is not None:
        raise BackendUnavailable(*found)
    return dtype


def needs_other_weights(
    settings: PrecisionSettings,
    what: str,
    device: torch.device,
    before: torch.dtype,
    dtype: torch.dtype,
    supported: tuple[torch.dtype, ...] | None,
) -> bool:
    """Return whether the settings ask for other weights; arguments as those and the result of ``choose_dtype``.

    Raises:
        UnsupportedModel: if they change nothing at all.
    """
    other_weights = dtype != before or settings.channels_last
    if not other_weights and not settings.extras():
        raise UnsupportedModel(
            f"Nothing would change: this {what} computes in {dtype_name(before)} already"
            + (f", which suits {device.type} best." if settings.torch_dtype is None else "."),
            f"Choose another dtype ({_names((dtype,) if supported is None else supported)}), or remove the node.",
        )
    return other_weights


def _names(dtypes: tuple[torch.dtype, ...]) -> str:
    return ", ".join(dtype_name(dtype) for dtype in dtypes)
