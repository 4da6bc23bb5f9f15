"""Model Precision and VAE Precision without a host: the dtype of arithmetic and weights, and faster matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from .core.activity import Activity, Summary
from .core.devices import SWITCHES
from .core.errors import BackendUnavailable, InvalidSetting, NothingGained
from .core.memory_format import channels_last
from .core.phrases import phrase
from .core.settings import Settings, choice
from .core.technique import PRECISION, Policy

_NAMES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
DTYPES = ("auto", *_NAMES)


@dataclass(frozen=True)
class PrecisionSettings(Settings):
    """Settings of Model Precision and VAE Precision; `InvalidSetting` if one of them is not allowed.

    Attributes:
        dtype: what the network computes in; ``auto`` is what suits the device.
        fp16_accumulation: whether fp16 matrix products add up in fp16 while the network runs (NVIDIA).
        tf32: whether fp32 matrix products round their inputs to TF32 while the network runs (NVIDIA).
    """

    dtype: str = choice("auto", DTYPES)
    channels_last: bool = False
    fp16_accumulation: bool = False
    tf32: bool = False

    @property
    def torch_dtype(self) -> torch.dtype | None:
        """The chosen dtype, or None for ``auto``."""
        return _NAMES.get(self.dtype)

    def switches(self) -> tuple[str, ...]:
        """Return the names of the faster arithmetic that is chosen."""
        return tuple(name for name in SWITCHES if getattr(self, name))

    def extras(self) -> tuple[str, ...]:
        """Return the choices other than the dtype, in words."""
        names = {"channels last": self.channels_last, "fp16 accumulation": self.fp16_accumulation, "TF32": self.tf32}
        return tuple(name for name, chosen in names.items() if chosen)


@contextmanager
def arithmetic(settings: PrecisionSettings) -> Iterator[None]:
    """Switch on what ``settings`` ask for, and put the switches back to what they were, also after an error."""
    with ExitStack() as stack:
        for name in settings.switches():
            stack.enter_context(SWITCHES[name])
        yield


def dtype_name(dtype: torch.dtype) -> str:
    """Return the short name of a dtype, e.g. ``bf16``."""
    return next((name for name, found in _NAMES.items() if found == dtype), str(dtype).removeprefix("torch."))


def processor_dtype() -> torch.dtype:
    """Return this processor's quickest dtype: bfloat16 where it has instructions for products in it."""
    names = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    found = any(getattr(torch.cpu, name, lambda: False)() for name in names)
    return torch.bfloat16 if found else torch.float32


def useless_switch(settings: PrecisionSettings, device: torch.device, dtype: torch.dtype) -> tuple[str, str] | None:
    """Return why a switch would do nothing for a network that computes in ``dtype``, and what to do; else None."""
    for name in settings.switches():
        label = "fp16" if name == "fp16_accumulation" else "fp32"
        why, what = "", f"Switch {name} off"
        # torch calls AMD's GPUs "cuda" too. Sums in fp16 are left out there; some of them have TF32.
        amd = torch.version.hip is not None and device.type == "cuda" and label == "fp16"
        if amd or device.type != "cuda":
            why = f"is for NVIDIA GPUs, and this model computes on {'ROCm' if amd else device.type}"
        elif dtype != _NAMES[label]:
            found = str(dtype).removeprefix("torch.")
            why = f"changes products of {label} numbers only, and this model computes in {found}"
            what += f", or choose dtype {label}"
        elif label == "fp16" and not hasattr(torch.backends.cuda.matmul, "allow_fp16_accumulation"):
            why = f"needs torch 2.7 or newer; this is torch {torch.__version__}"
        elif label == "fp32" and torch.cuda.get_device_capability(device) < (8, 0):
            found = torch.cuda.get_device_name(device)
            why = f"needs a GPU of compute capability 8.0 (RTX 30 or A100) or newer; this is {found}"
        if why:
            return f"{name} {why}.", f"{what}."
    return None


_PLAIN = (torch.float32, torch.bfloat16, torch.float16)

_LOST = "dynamic VRAM does not keep weights channels last: start ComfyUI with --disable-dynamic-vram for that"


def choose_dtype(
    settings: PrecisionSettings,
    what: str,
    device: torch.device,
    otherwise: torch.dtype,
    supported: tuple[torch.dtype, ...] | None = None,
) -> torch.dtype:
    """Return the dtype that a network shall compute in; ``what`` is its name in sentences.

    ``otherwise`` is what ``auto`` means where ``device`` is no processor, or where the processor's choice does not
    work; ``supported``: what it works in, if it says. Raises `InvalidSetting` if it does not work in the chosen dtype,
    `BackendUnavailable` if the device has no such arithmetic.
    """
    dtype = settings.torch_dtype or (processor_dtype() if device.type == "cpu" else otherwise)
    if supported is not None and dtype not in supported:
        if settings.torch_dtype is not None:
            raise InvalidSetting(
                f"dtype is {settings.dtype}, in which a {what} does not work: its numbers get too large or too small.",
                f"Choose auto or one of: {_names(supported)}.",
            )
        dtype = otherwise
    found = useless_switch(settings, device, dtype)
    if found is not None:
        raise BackendUnavailable(*found)
    return dtype


def storage_dtype(stored: torch.dtype, compute: torch.dtype) -> torch.dtype:
    """Return the dtype to store weights in: never more bytes than they have now. The host casts them at each use."""
    return compute if stored in _PLAIN and compute.itemsize <= stored.itemsize else stored


class PrecisionPolicy(Policy):
    """The policy of Model Precision and VAE Precision, the same for all hosts and networks.

    Args:
        previous, dtype: what the network computed in, and computes in now.
        stored, storage: what its weights are in, and are kept in now.
        streamed: whether the host copies weights to the device while the network runs, rows first.
        kept: how many weights stay in fp32.
    """

    kind = PRECISION
    neutral = True

    def __init__(
        self,
        title: str,
        settings: PrecisionSettings,
        previous: torch.dtype,
        dtype: torch.dtype,
        stored: torch.dtype,
        storage: torch.dtype,
        *,
        streamed: bool = False,
        kept: int = 0,
    ) -> None:
        self.title, self.settings = title, settings
        self.previous, self.dtype, self.stored, self.storage = previous, dtype, stored, storage
        self._details = list(settings.extras())
        if dtype != previous:
            cast = ", cast at each use" if storage != dtype else ""
            self._details.insert(0, f"weights in {dtype_name(storage)}{cast}")
        if streamed and settings.channels_last:
            self._details.append(_LOST)
        if kept:
            self._details.append(f"{kept} weights stay in fp32")

    @property
    def approximation(self) -> str:
        return dtype_name(self.dtype) if self.dtype == torch.float16 != self.previous else ""

    @property
    def changes_weights(self) -> bool:
        """Whether the settings ask for other weights, or the same in another order in memory."""
        return self.dtype != self.previous or self.settings.channels_last

    def clauses(self) -> tuple[str, ...]:
        """Return e.g. ``computes in bf16 instead of fp32``, ``weights in bf16`` and ``channels last``."""
        return (self._headline(), *self._details)

    def summarize(self, activity: Activity) -> Summary:
        calls = activity.use_count
        if not calls:
            return Summary("inactive", phrase("not active: {why}", why=phrase("the model was not called")))
        headline = phrase("active in {calls} model {calls|call|calls}: {how}", calls=calls, how=self._headline())
        return Summary("active", headline, {"calls": calls}, tuple(self._details))

    def require_change(self, what: str, device: torch.device, supported: tuple[torch.dtype, ...] | None) -> None:
        """Raise `NothingGained` unless the settings change anything; ``supported`` as for ``choose_dtype``."""
        if self.changes_weights or self.settings.extras():
            return
        dtype = dtype_name(self.previous)
        best = f", which suits {device.type} best" if self.settings.torch_dtype is None else ""
        raise NothingGained(
            f"Nothing would change: this {what} computes in {dtype} already{best}.",
            f"Choose another dtype ({_names(supported or (self.dtype,))}), or remove the node.",
            phrase("it computes in {dtype} already", dtype=dtype),
        )

    def convert_weight(self, tensor: Tensor) -> Tensor:
        """Return a weight as it is kept now; with channels last if it belongs to a convolution.

        Weights in another dtype than ``stored`` are left: their network keeps them so (tables in fp32, int8 layers).
        """
        if tensor.dtype == self.stored != self.storage:
            tensor = tensor.to(self.storage)
        return channels_last(tensor) if self.settings.channels_last else tensor

    def _headline(self) -> str:
        dtype = dtype_name(self.dtype)
        if self.dtype == self.previous:
            return phrase("computes in {dtype}", dtype=dtype)
        return phrase("computes in {dtype} instead of {before}", dtype=dtype, before=dtype_name(self.previous))


def _names(dtypes: tuple[torch.dtype, ...]) -> str:
    return ", ".join(map(dtype_name, dtypes))
