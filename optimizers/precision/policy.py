"""What a network computes in and keeps its weights in, and what a person reads about it. One rule for all hosts."""

from __future__ import annotations

import torch
from torch import Tensor

from ...core.activity import Activity, Summary
from ...core.errors import BackendUnavailable, InvalidSetting, NothingGained
from ...core.memory_format import channels_last
from ...core.phrases import joined, phrase, translatable
from ...core.technique import PRECISION, Policy
from .arithmetic import missing
from .settings import PrecisionSettings, dtype_name, processor_dtype

_PLAIN = (torch.float32, torch.bfloat16, torch.float16)

_LOST = translatable(
    "dynamic VRAM does not keep weights channels last: start ComfyUI with --disable-dynamic-vram for that"
)


def choose_dtype(
    settings: PrecisionSettings,
    what: str,
    device: torch.device,
    otherwise: torch.dtype,
    supported: tuple[torch.dtype, ...] | None = None,
) -> torch.dtype:
    """Return what ``what``, as a person calls it, shall compute in.

    ``otherwise`` is what ``auto`` means where ``device`` is no processor, or where the processor's choice does not
    work; ``supported`` what it works in, None if it does not say.

    Raises:
        InvalidSetting: if it does not work in the chosen dtype.
        BackendUnavailable: if the device has no such arithmetic.
    """
    dtype = settings.torch_dtype or (processor_dtype() if device.type == "cpu" else otherwise)
    if supported is not None and dtype not in supported:
        if settings.torch_dtype is not None:
            raise InvalidSetting(
                phrase(
                    "dtype is {dtype}, in which a {model} does not work: its numbers get too large or too small.",
                    dtype=settings.dtype,
                    model=what,
                ),
                phrase("Choose auto or one of: {dtypes}.", dtypes=_names(supported)),
            )
        dtype = otherwise
    found = missing(settings, device, dtype)
    if found is not None:
        raise BackendUnavailable(*found)
    return dtype


def storage_dtype(stored: torch.dtype, compute: torch.dtype) -> torch.dtype:
    """Return what weights are kept in: never more bytes than they have now. The host casts the rest at each use."""
    return compute if stored in _PLAIN and compute.itemsize <= stored.itemsize else stored


class PrecisionPolicy(Policy):
    """What a precision node or setting does and says, whatever host and whatever kind of network.

    Args:
        settings: what was asked for.
        previous: what the network computed in.
        dtype: what it computes in now.
        stored: what its weights are in.
        storage: what they are kept in now.

    Attributes:
        streamed: whether the host copies weights to the device while the network runs, rows first.
    """

    streamed = False
    kind = PRECISION

    def __init__(
        self,
        settings: PrecisionSettings,
        previous: torch.dtype,
        dtype: torch.dtype,
        stored: torch.dtype,
        storage: torch.dtype,
    ) -> None:
        self.settings, self.previous, self.dtype, self.stored, self.storage = settings, previous, dtype, stored, storage

    def clauses(self) -> tuple[str, ...]:
        """Return e.g. ``computes in bf16 instead of fp32, weights in bf16`` and ``channels last``."""
        return (self._headline(), *self._extras())

    def summarize(self, activity: Activity) -> Summary:
        """Return e.g. ``active in 20 model calls: computes in bf16 ...``."""
        calls = activity.use_count
        if not calls:
            return Summary("inactive", phrase("not active: {why}", why=translatable("the model was not called")))
        headline = phrase("active in {calls} model {calls|call|calls}: {how}", calls=calls, how=self._headline())
        return Summary("active", headline, {"calls": calls}, self._extras())

    def require_change(self, what: str, device: torch.device, supported: tuple[torch.dtype, ...] | None) -> bool:
        """Return whether the settings ask for other weights; ``supported`` as for ``choose_dtype``.

        Raises:
            NothingGained: if they change nothing at all.
        """
        other_weights = self.dtype != self.previous or self.settings.channels_last
        if not other_weights and not self.settings.extras():
            dtype = dtype_name(self.previous)
            problem = phrase("Nothing would change: this {model} computes in {dtype} already.", model=what, dtype=dtype)
            if self.settings.torch_dtype is None:
                problem = phrase(
                    "Nothing would change: this {model} computes in {dtype} already, which suits {device} best.",
                    model=what,
                    dtype=dtype,
                    device=device.type,
                )
            dtypes = _names(supported or (self.dtype,))
            remedy = phrase("Choose another dtype ({dtypes}), or remove the node.", dtypes=dtypes)
            raise NothingGained(problem, remedy, phrase("it computes in {dtype} already", dtype=dtype))
        return other_weights

    def convert_weight(self, tensor: Tensor) -> Tensor:
        """Return a weight as it is kept now; with channels last if it belongs to a convolution.

        Weights in another dtype than ``stored`` are left: their network keeps them so (tables in fp32, int8 layers).
        """
        if tensor.dtype == self.stored != self.storage:
            tensor = tensor.to(self.storage)
        return channels_last(tensor) if self.settings.channels_last else tensor

    def _extras(self) -> tuple[str, ...]:
        lost = self.streamed and self.settings.channels_last
        return (*self.settings.extras(), *((_LOST,) if lost else ()))

    def _headline(self) -> str:
        dtype, before, weights = dtype_name(self.dtype), dtype_name(self.previous), dtype_name(self.storage)
        if self.dtype == self.previous:
            return phrase("computes in {dtype}", dtype=dtype)
        parts: list[str] = [phrase("computes in {dtype} instead of {before}", dtype=dtype, before=before)]
        parts.append(phrase("weights in {dtype}", dtype=weights))
        if self.storage != self.dtype:
            parts.append(translatable("cast at each use"))
        return joined(", ", parts)


def _names(dtypes: tuple[torch.dtype, ...]) -> str:
    return ", ".join(dtype_name(dtype) for dtype in dtypes)
