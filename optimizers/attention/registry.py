"""The list of attention backends, and which of them can be used where.

``BACKENDS``, ``names`` and ``get`` touch no device and import no package: node schemas call them on every page load.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from ...core.errors import BackendUnavailable, not_allowed, one_of
from . import flash, kitchen, plain, sage, sdpa, xformers_backend
from .backend import AttentionFunction, Backend, short
from .probing import probe

# In the order of the node's list: backends to try first stand first.
_FAMILIES = (sdpa, flash, xformers_backend, kitchen, sage, plain)
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
    """Return what ``auto`` means for these head sizes, the first of ``AUTO_ORDER`` that works, and why not others.

    Raises `BackendUnavailable` if even the plain formula fails there (a dtype that torch cannot multiply).
    """
    device = torch.device(device)
    sizes = sorted(set(head_dims))
    order = AUTO_ORDER_UNFUSED if device.type == "privateuseone" else AUTO_ORDER
    passed_over: list[str] = []
    for name in order:
        failed = next((p for p in (probe(BACKENDS[name], device, dtype, d) for d in sizes) if not p.available), None)
        if failed is None:
            return name, " ".join(passed_over)
        passed_over.append(f"{name} was passed over: {failed.reason}.")
    problem = f"No exact attention backend runs on {device} in {short(dtype)}."
    raise BackendUnavailable(problem, " ".join(passed_over))
