"""An attention backend and its limits. They are data: calls are checked beforehand, tests and reports read them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

Mask = Tensor | None
"""What may be seen, see :class:`Inputs`; None: everything."""

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
HALVES = (torch.float16, torch.bfloat16)

# CUDA kernels put the batch on a grid axis of at most 65535 blocks; ComfyUI stays below half of it on NVIDIA
# (SDP_BATCH_LIMIT in comfy/ldm/modules/attention.py), because torch fails with "invalid configuration argument".
CUDA_MAX_BATCH = 2**15


class Inputs(NamedTuple):
    """The arguments of one call of attention.

    q ``[batch, query_heads, query_tokens, head_dim]``, k and v ``[batch, key_heads, key_tokens, head_dim]`` (v may have
    another size), all of one dtype and device. ``mask`` broadcasts to ``[batch, query_heads, query_tokens,
    key_tokens]`` from two or four dimensions: boolean (True takes part) or added to the scaled scores. ``scale`` None
    means ``head_dim ** -0.5``. ``enable_gqa``: query heads ``i*n .. i*n + n-1`` read key head ``i``, as in torch.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Mask = None
    scale: float | None = None
    enable_gqa: bool = False


AttentionFunction = Callable[[Inputs], Tensor]
"""softmax(Q K^T * scale + mask) V in the dtype of ``q``, without dropout and without causality.

A query that may see no key at all gives zeros, as torch's SDPA does since 2.5. Calls outside of the limits raise
ValueError or RuntimeError: no backend quietly uses another one.
"""


@dataclass(frozen=True)
class AttentionCall:
    """The shapes and dtypes of a call, which limits depend on; ``mask`` is "none", "bool" or "additive"."""

    device: str
    dtype: torch.dtype
    head_dim: int
    query_tokens: int
    key_tokens: int
    batch: int = 1
    query_heads: int = 1
    key_heads: int = 1
    value_head_dim: int | None = None
    mask: str = "none"
    needs_grad: bool = False

    @classmethod
    def of(cls, q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> AttentionCall:
        """Describe a call with tensors ``[batch, heads, tokens, head_dim]``."""
        kind = "none" if mask is None else "bool" if mask.dtype == torch.bool else "additive"
        wants_grad = q.requires_grad or k.requires_grad or v.requires_grad
        return cls(
            device=q.device.type,
            dtype=q.dtype,
            head_dim=q.shape[-1],
            query_tokens=q.shape[-2],
            key_tokens=k.shape[-2],
            batch=q.shape[0],
            query_heads=q.shape[1],
            key_heads=k.shape[1],
            value_head_dim=v.shape[-1],
            mask=kind,
            needs_grad=wants_grad and torch.is_grad_enabled(),
        )


@dataclass(frozen=True)
class Limits:
    """The calls that a backend supports; the defaults support all.

    Attributes:
        devices: torch device types; None takes any. ROCm devices are called "cuda" by torch.
        dtypes: of q, k and v; None takes any.
        max_head_dim, head_dim_multiple_of: of q, k and v.
        min_compute_capability, max_compute_capability: of an NVIDIA GPU, inclusive.
    """

    devices: tuple[str, ...] | None = None
    dtypes: tuple[torch.dtype, ...] | None = FLOATS
    max_head_dim: int | None = None
    head_dim_multiple_of: int = 1
    min_key_tokens: int = 1
    key_tokens_multiple_of: int = 1
    max_batch: int | None = None
    accepts_mask: bool = True
    accepts_grad: bool = True
    accepts_other_value_head_dim: bool = True
    min_compute_capability: tuple[int, int] | None = None
    max_compute_capability: tuple[int, int] | None = None

    def refusal(self, call: AttentionCall) -> str | None:
        """Return one short phrase naming what was found and what is allowed, or None; of a device that they are for."""
        if self.dtypes is not None and call.dtype not in self.dtypes:
            return f"dtype {short(call.dtype)} (takes {', '.join(map(short, self.dtypes))})"
        value_head_dim = call.head_dim if call.value_head_dim is None else call.value_head_dim
        for size in (call.head_dim, value_head_dim):
            if self.max_head_dim is not None and size > self.max_head_dim:
                return f"head size {size} (takes up to {self.max_head_dim})"
            if size % self.head_dim_multiple_of:
                return f"head size {size} (takes multiples of {self.head_dim_multiple_of})"
        if not self.accepts_other_value_head_dim and value_head_dim != call.head_dim:
            return f"value head size {value_head_dim} with head size {call.head_dim} (takes equal sizes)"
        if call.query_tokens < 1:
            return "0 query tokens (needs 1 or more)"
        if call.key_tokens < self.min_key_tokens:
            return f"{call.key_tokens} key tokens (needs {self.min_key_tokens} or more)"
        if call.key_tokens % self.key_tokens_multiple_of:
            return f"{call.key_tokens} key tokens (takes multiples of {self.key_tokens_multiple_of})"
        if self.max_batch is not None and call.batch > self.max_batch:
            return f"batch {call.batch} (takes up to {self.max_batch})"
        if call.query_heads % call.key_heads:
            return f"{call.query_heads} query heads for {call.key_heads} key heads (takes multiples)"
        if call.mask != "none" and not self.accepts_mask:
            return f"{'a bool' if call.mask == 'bool' else 'an additive'} mask (takes none)"
        if call.needs_grad and not self.accepts_grad:
            return "gradients (inference only)"
        return None

    def machine_refusal(self, device: torch.device) -> str | None:
        """Return why this machine's ``device`` cannot run it whatever the call, or None; it asks the driver."""
        if device.type != "cuda":
            return None
        if not torch.cuda.is_available():
            return f"torch {torch.__version__} has no CUDA device"
        if torch.version.hip is not None:  # AMD reports its gfx version as a "capability": not comparable
            return None
        return self.capability_refusal(torch.cuda.get_device_capability(device))

    def capability_refusal(self, found: tuple[int, int]) -> str | None:
        """Return why an NVIDIA GPU of compute capability ``found`` cannot run it, or None."""
        least, most = self.min_compute_capability, self.max_compute_capability
        if least is not None and found < least:
            return f"it needs an NVIDIA GPU of compute capability {_dotted(least)} or newer, not {_dotted(found)}"
        if most is not None and found > most:
            return f"it takes NVIDIA GPUs up to compute capability {_dotted(most)}, not {_dotted(found)}"
        return None


CUDA = Limits(devices=("cuda",), max_batch=CUDA_MAX_BATCH)
CUDA_HALF = replace(
    CUDA,
    dtypes=HALVES,
    max_head_dim=128,
    head_dim_multiple_of=8,
    accepts_mask=False,
    accepts_other_value_head_dim=False,
    min_compute_capability=(8, 0),
)
"""Limits that the half-precision kernels for NVIDIA GPUs from Ampere on share."""


@dataclass(frozen=True)
class Backend:
    """One way to compute attention.

    Attributes:
        name: stable id, saved in workflow files.
        load: imports what is needed and returns the function, the same object each time (torch.compile guards on it);
            may raise anything.
        limits: alternatives, usually one per device type; the first one that names the device decides.
        module, package: import name and pip name of what must be installed, or "".
        install: pip arguments that never replace the user's torch; ``install_note`` says which version matches.
        exact: False where inputs are quantised.
    """

    name: str
    load: Callable[[], AttentionFunction]
    limits: tuple[Limits, ...] = (Limits(),)
    module: str = ""
    package: str = ""
    install: str = ""
    install_note: str = ""
    exact: bool = True

    @property
    def devices(self) -> tuple[str, ...]:
        """The device types that its limits name."""
        return tuple(device for limits in self.limits for device in limits.devices or ())

    def limits_for(self, device: str) -> Limits | None:
        """Return the limits that hold on a device type, or None where there is no kernel for it."""
        return next((limits for limits in self.limits if limits.devices is None or device in limits.devices), None)

    def refusal(self, call: AttentionCall) -> str | None:
        """Return why this call is not taken, as one short phrase, or None. Cheap, and traceable by torch.compile."""
        limits = self.limits_for(call.device)
        if limits is None:
            return f"device {call.device} (runs on {', '.join(self.devices)})"
        return limits.refusal(call)


def short(dtype: torch.dtype) -> str:
    """Return "float16" for ``torch.float16``."""
    return str(dtype).removeprefix("torch.")


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"
