"""The list of attention backends, and which of them can be used where.

``BACKENDS``, ``names`` and ``get`` touch no device and import no package: node schemas call them on every page load.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from ...core.errors import BackendUnavailable, not_allowed, one_of
from . import flash, plain, sage, sdpa, xformers_backend
from .backend import AttentionCall, AttentionFunction, Backend, short
from .probing import probe

# In the order of the node's list: backends to try first stand first.
_FAMILIES = (sdpa, flash, xformers_backend, sage, plain)
BACKENDS: Mapping[str, Backend] = {backend.name: backend for family in _FAMILIES for backend in family.BACKENDS}

# What `auto` tries, best first, exact ones only. torch's own choice comes first: it holds FlashAttention-2, cuDNN and
# the CUTLASS kernel and picks by GPU and shape; the packages are worth trying by hand, not by default.
AUTO_ORDER = ("sdpa", "sub_quadratic", "split", "vanilla")
# DirectML has no fused kernel, so SDPA would hold the full score matrix; ComfyUI uses sub-quadratic there as well.
AUTO_ORDER_UNFUSED = ("sub_quadratic", "split", "sdpa", "vanilla")


def names() -> tuple[str, ...]:
    """Return the names of all backends, available or not, in the order of a list."""
    return tuple(BACKENDS)


def get(name: str) -> Backend:
    """Return the backend called ``name``; `InvalidSetting` if there is none."""
    if name not in BACKENDS:
        raise not_allowed("The attention backend", name, one_of(BACKENDS))
    return BACKENDS[name]


def require(name: str, device: torch.device | str, dtype: torch.dtype, head_dim: int = 64) -> AttentionFunction:
    """Return the function of a backend that has computed the right numbers here, for q, k and v of this head size.

    Raises `InvalidSetting` for an unknown name, `BackendUnavailable` with the reason and a remedy if it cannot run.
    """
    backend = get(name)
    found = probe(backend, device, dtype, head_dim)
    if found.function is None:
        problem = f"The attention backend '{name}' cannot be used here: {found.reason}."
        raise BackendUnavailable(problem, found.remedy, found.reason)
    return found.function


def choose(device: torch.device | str, dtype: torch.dtype, head_dims: Iterable[int] = (64,)) -> tuple[str, str]:
    """Return what ``auto`` means for these head sizes: the first of ``AUTO_ORDER`` that works for all, and why.

    Raises `BackendUnavailable` if even the plain formula fails there (a dtype that torch cannot multiply).
    """
    device = torch.device(device)
    sizes = sorted(set(head_dims))
    order = AUTO_ORDER_UNFUSED if device.type == "privateuseone" else AUTO_ORDER
    passed_over: list[str] = []
    for name in order:
        failed = next((p for p in (probe(BACKENDS[name], device, dtype, d) for d in sizes) if not p.available), None)
        if failed is None:
            return name, " ".join((_why(name, device, dtype, sizes), *passed_over))
        passed_over.append(f"{name} was passed over: {failed.reason}.")
    problem = f"No exact attention backend runs on {device} in {short(dtype)}."
    raise BackendUnavailable(problem, " ".join(passed_over))


def _why(name: str, device: torch.device, dtype: torch.dtype, head_dims: list[int]) -> str:
    if name != "sdpa":
        return f"{name} is exact and needs no fused kernel."
    if device.type == "cpu":
        return "PyTorch's own attention is exact and has a fused kernel for the CPU."
    if device.type != "cuda":
        return f"PyTorch's own attention is exact and is what {device.type} devices have a kernel for."
    nvidia = torch.version.hip is None and torch.cuda.is_available()
    capability = torch.cuda.get_device_capability(device) if nvidia else None
    inside: dict[str, list[str]] = {}  # which kernels -> for which head sizes
    for head_dim in head_dims:
        kernels = " or ".join(fused_kernels(dtype, head_dim, capability) or ("no fused kernel",))
        inside.setdefault(kernels, []).append(str(head_dim))
    listed = "; ".join(f"{kernels} for head size {', '.join(sizes)}" for kernels, sizes in inside.items())
    return f"PyTorch's own attention is exact and picks a kernel for each call: {listed}."


def fused_kernels(dtype: torch.dtype, head_dim: int, capability: tuple[int, int] | None) -> tuple[str, ...]:
    """Return the fused CUDA kernels of torch that take unmasked calls; ``capability``: of an NVIDIA GPU, or None."""
    call = AttentionCall("cuda", dtype, head_dim, query_tokens=64, key_tokens=64)
    kernels = {"flash": "sdpa_flash", "cuDNN": "sdpa_cudnn", "memory-efficient": "sdpa_efficient"}
    limits = {label: BACKENDS[name].limits[0] for label, name in kernels.items()}
    return tuple(
        label
        for label, declared in limits.items()
        if declared.refusal(call) is None and (capability is None or declared.capability_refusal(capability) is None)
    )
