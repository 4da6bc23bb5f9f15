"""The settings of Model Precision and VAE Precision, and the switches of torch that they set for one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

import torch

from ..core.settings import Settings, choice

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

    def extras(self) -> tuple[str, ...]:
        """Return the choices other than the dtype, in words."""
        names = {"channels last": self.channels_last, "fp16 accumulation": self.fp16_accumulation, "TF32": self.tf32}
        return tuple(name for name, chosen in names.items() if chosen)


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
    for chosen, name, needed, label in (
        (settings.fp16_accumulation, "fp16_accumulation", torch.float16, "fp16"),
        (settings.tf32, "tf32", torch.float32, "fp32"),
    ):
        if not chosen:
            continue
        # torch calls AMD's GPUs "cuda" too. Sums in fp16 are left out there; some of them have TF32.
        amd = torch.version.hip is not None and device.type == "cuda" and name == "fp16_accumulation"
        if amd or device.type != "cuda":
            found = "ROCm" if amd else device.type
            return f"{name} is for NVIDIA GPUs, and this model computes on {found}.", f"Switch {name} off."
        if dtype != needed:
            found = str(dtype).removeprefix("torch.")
            return (
                f"{name} changes products of {label} numbers only, and this model computes in {found}.",
                f"Switch {name} off, or choose dtype {label}.",
            )
    if settings.fp16_accumulation and not hasattr(torch.backends.cuda.matmul, "allow_fp16_accumulation"):
        problem = f"fp16_accumulation needs torch 2.7 or newer; this is torch {torch.__version__}."
        return problem, "Switch fp16_accumulation off."
    if settings.tf32 and torch.cuda.get_device_capability(device) < (8, 0):
        found = torch.cuda.get_device_name(device)
        problem = f"tf32 needs a GPU of compute capability 8.0 (RTX 30 or A100) or newer; this is {found}."
        return problem, "Switch tf32 off."
    return None


class _Switch:
    """Switches something of the whole process on while at least one thread is inside.

    ComfyUI runs the clones for several GPUs at once: the first that leaves must switch nothing off for the others, and
    the last one must put back what was there before the first came.
    """

    def __init__(self, on: Callable[[], AbstractContextManager[None]]) -> None:
        self._on, self._undo, self._lock, self._inside = on, ExitStack(), Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._undo.enter_context(self._on())
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._undo.close()


@contextmanager
def arithmetic(settings: PrecisionSettings) -> Iterator[None]:
    """Switch on what ``settings`` ask for, and put the switches back to what they were, also after an error."""
    with ExitStack() as stack:
        if settings.fp16_accumulation:
            stack.enter_context(_FP16_ACCUMULATION)
        if settings.tf32:
            stack.enter_context(_TF32)
        yield


@contextmanager
def _fp16_accumulation() -> Iterator[None]:
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_fp16_accumulation
    matmul.allow_fp16_accumulation = True
    try:
        yield
    finally:
        matmul.allow_fp16_accumulation = before


@contextmanager
def _tf32() -> Iterator[None]:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    with _tf32_of(matmul, matmul), _tf32_of(cudnn, getattr(cudnn, "conv", None), getattr(cudnn, "rnn", None)):
        yield


_FP16_ACCUMULATION, _TF32 = _Switch(_fp16_accumulation), _Switch(_tf32)


@contextmanager
def _tf32_of(backend: Any, *parts: Any) -> Iterator[None]:
    # Newer versions have a second name for the same switch, which must be put back too. The first is the one to use:
    # torch.compile reads it, and fails where only the second was set.
    second = [(part, part.fp32_precision) for part in parts if hasattr(part, "fp32_precision")]
    first = False
    # The first cannot be read where somebody has set the second only, to something else: then it is read beside "tf32".
    for wanted in (None, "tf32"):
        for part, value in second:
            part.fp32_precision = wanted or value
        try:
            first = backend.allow_tf32
            break
        except RuntimeError:
            continue
    if first and all(value == "tf32" for _, value in second):
        yield  # torch.set_float32_matmul_precision("medium") means it too, and cannot be read any more after a change
        return
    backend.allow_tf32 = True
    try:
        yield
    finally:
        backend.allow_tf32 = first
        for part, value in second:
            part.fp32_precision = value
