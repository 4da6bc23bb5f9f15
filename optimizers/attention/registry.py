"""The list of attention backends.

``BACKENDS``, ``backend_names`` and ``get`` touch no device and import no package: node schemas call them on every page
load.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ...core.errors import BackendUnavailable, not_allowed, one_of
from . import flash, kitchen, plain, sage, sdpa, xformers_backend
from .backend import AttentionFunction, Backend
from .probing import probe_backend

# In the order of the node's list: backends to try first stand first.
_FAMILIES = (sdpa, flash, xformers_backend, kitchen, sage, plain)
BACKENDS: Mapping[str, Backend] = {backend.name: backend for family in _FAMILIES for backend in family.BACKENDS}

OWN = "sdpa"
"""torch's own choice of kernel, which was the first in each measurement on a GPU: what ``auto`` means."""


def backend_names() -> tuple[str, ...]:
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
    found = probe_backend(backend, device, dtype, head_dim)
    if found.function is None:
        problem = f"The attention backend '{name}' cannot be used here: {found.reason}."
        raise BackendUnavailable(problem, found.remedy, found.reason)
    return found.function
