"""The list of attention backends, and whether one works on this machine: one small call, compared with the formula.

A package that imports may still have no kernel for this GPU, dtype or head size, or compute wrong numbers.
``BACKENDS`` and ``get`` touch no device and import no package: node schemas read them on every page load.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata

import torch

from ..core.devices import is_out_of_memory
from ..core.errors import require_choice
from . import packages
from .backend import AttentionCall, AttentionFunction, Backend, Inputs
from .torch_attention import FORCED, SDPA, VANILLA

TOKENS = 64
HEADS = 2
# Relative L2 error against fp64: right kernels in bf16 stay below 0.01 and 8-bit ones below 0.05 on these inputs; a
# wrong layout or head order gives about 1.
TOLERANCE_EXACT = 0.02
TOLERANCE_APPROXIMATE = 0.15
OTHERWISE = "Choose 'auto' or 'sdpa'."
NO_MEMORY = "no memory was left for a test call"


@dataclass(frozen=True)
class Probe:
    """The answer of a probe: ``reason`` (one line, no full stop) and ``remedy``, or the ``function`` that works."""

    reason: str = ""
    remedy: str = ""
    function: AttentionFunction | None = field(default=None, repr=False, compare=False)


_found: dict[tuple[Backend, torch.device, torch.dtype, int], Probe] = {}


def probe_backend(backend: Backend, device: torch.device | str, dtype: torch.dtype, head_dim: int = 64) -> Probe:
    """Return whether ``backend`` computes the right numbers on this device, dtype and head size; never raises.

    Runs ``[1, 2, 64, head_dim]`` once and remembers the answer for the life of the process, but not that memory ran
    out. Uses its own random numbers, so torch's generators are not advanced.
    """
    device = torch.device(device)
    if device.type == "cuda" and device.index is None and torch.cuda.is_available():
        device = torch.device("cuda", torch.cuda.current_device())  # "cuda" and "cuda:0" share one answer
    key = (backend, device, dtype, head_dim)
    if key not in _found:
        try:
            _found[key] = _probe(backend, device, dtype, head_dim)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            return Probe(NO_MEMORY, "Free some memory and try again.")
    return _found[key]


def _probe(backend: Backend, device: torch.device, dtype: torch.dtype, head_dim: int) -> Probe:
    # The device first: no package helps on a device that the kernel does not run on.
    call = AttentionCall(device.type, dtype, head_dim, TOKENS, TOKENS, 1, HEADS, HEADS)
    limits = backend.limits_for(device.type)
    if limits is None:
        runs_on = " or ".join(backend.devices)
        return Probe(f"it has no kernel for {device.type} (runs on {runs_on})", OTHERWISE)
    refusal = limits.machine_refusal(device)
    if refusal is not None:
        return Probe(refusal, OTHERWISE)
    refusal = limits.refusal(call)
    if refusal is not None:
        return Probe(f"it does not take {refusal}", OTHERWISE)
    try:
        function = backend.load()
    except Exception as error:
        return _not_loaded(backend, error)
    with warnings.catch_warnings(record=True) as heard:  # torch says in warnings why a forced kernel was not used
        warnings.simplefilter("always")
        try:
            wrong = _relative_error(function, device, dtype, head_dim)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            why = _one_line(error) + _warned(str(warning.message) for warning in heard)
            return Probe(f"{_versioned(backend)} failed a test call on {device}: {why}", OTHERWISE)
    tolerance = TOLERANCE_EXACT if backend.exact else TOLERANCE_APPROXIMATE
    if not wrong <= tolerance:  # catches NaN
        reason = f"{_versioned(backend)} computed wrong numbers on {device} (relative error {wrong:.2g})"
        return Probe(reason, OTHERWISE)
    return Probe(function=function)


def _warned(messages: Iterable[str]) -> str:
    """Return the reasons among torch's warnings as " (reason; reason)", without headings and C++ source lines."""
    texts = [re.sub(r"\(Triggered internally at .*?\)", "", " ".join(message.split())).strip() for message in messages]
    reasons = [text for text in texts if not text.endswith("because:") and "runtime disabled" not in text]
    return f" ({'; '.join(dict.fromkeys(reasons))[:300]})" if reasons else ""


def _relative_error(function: AttentionFunction, device: torch.device, dtype: torch.dtype, head_dim: int) -> float:
    """Relative L2 distance of one call from the formula in fp64 on the CPU; copying the result back synchronises."""
    generator = torch.Generator("cpu").manual_seed(0)
    size = (1, HEADS, TOKENS, head_dim)
    q, k, v = (torch.randn(size, generator=generator, device="cpu", dtype=torch.float32).to(dtype) for _ in "qkv")
    with torch.no_grad():
        out = function(Inputs(q.to(device), k.to(device), v.to(device))).to("cpu", torch.float64)
        q, k, v = (t.double() for t in (q, k, v))
        expected = torch.softmax(q @ k.transpose(-1, -2) * head_dim**-0.5, dim=-1) @ v
    if out.shape != expected.shape:
        return float("inf")
    return float((out - expected).norm() / expected.norm())


def _not_loaded(backend: Backend, error: Exception) -> Probe:
    python = f'"{sys.executable}"' if " " in sys.executable else sys.executable
    command = f"Install it with: {python} -m pip {backend.install}" if backend.install else ""
    what = _versioned(backend)
    missing = error.name.partition(".")[0] if isinstance(error, ModuleNotFoundError) and error.name else ""
    if missing and missing == backend.module:
        # The command stands last, so that it can be copied without a full stop.
        return Probe(f"{backend.package} is not installed", _sentences(backend.install_note, command))
    if missing:
        reason = f"{what} is installed but needs {missing}, which is not"
        return Probe(reason, _sentences(backend.install_note, OTHERWISE))
    reason = f"{what} is installed but cannot be imported: {_one_line(error)}"
    if "cannot import name" in str(error):  # another version of the package itself
        return Probe(reason, _sentences(backend.install_note, OTHERWISE))
    another = f"It probably belongs to another torch than {torch.__version__}."
    return Probe(reason, _sentences(another, backend.install_note, OTHERWISE))


def _sentences(*parts: str) -> str:
    return " ".join(filter(None, parts))


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    text = text if len(text) <= 200 else text[:197] + "..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _versioned(backend: Backend) -> str:
    """Return "xformers 0.0.35" for a package, "it" for a kernel that is part of torch."""
    if not backend.package:
        return "it"
    try:
        return f"{backend.package} {metadata.version(backend.package)}"
    except metadata.PackageNotFoundError:
        return backend.package


# In the order of the node's list: backends to try first stand first.
BACKENDS: Mapping[str, Backend] = {one.name: one for one in (SDPA, *FORCED, *packages.BACKENDS, VANILLA)}

OWN = SDPA.name
"""torch's own choice of kernel, which was the first in each measurement on a GPU: what ``auto`` means."""


def get(name: str) -> Backend:
    """Return the backend called ``name``; `InvalidSetting` if there is none."""
    return BACKENDS[require_choice("The attention backend", name, tuple(BACKENDS))]
