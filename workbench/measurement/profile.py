"""Where the time of one step goes: a profile's operations and kernels, grouped by what they do. Knows no host."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SLICES = ("attention", "linear", "convolution", "norm_elementwise", "copies", "ours", "gaps")
"""The parts of a step. ``gaps``: the device waits for Python."""

# Parts of names of operators and kernels. A time belongs to the innermost operator that matches one of them.
_COMPUTES = (
    ("attention", ("attention", "flash", "fmha", "softmax", "bmm", "sage")),
    ("convolution", ("conv", "winograd", "implicit_gemm", "im2col")),
    ("linear", ("linear", "addmm", "aten::mm", "_mm", "matmul", "gemm", "cutlass", "cublas", "nvjet", "aten::dot")),
)
_COPIES = ("copy", "aten::to", "aten::cat", "clone", "contiguous", "memcpy", "memset", "pad", "aten::stack", "repeat")
_BOOKKEEPING = re.compile(
    r"aten::_?(view|t|transpose|as_strided_?|expand|reshape|permute|empty\w*|(un)?squeeze|slice|select|detach|alias|resize_|"
    r"unsafe_view|narrow|split\w*|chunk|unbind|unflatten|flatten|movedim|resolve_\w+|result_type|is_\w+|item|local_scalar_dense)"
)
_FRAME = re.compile(r"\(\d+\): |^<built-in|^nn\.Module: ")
_FOREIGN = re.compile(r"^<built-in|^nn\.Module: |(^|/)torch/")
_OURS = tuple(
    sorted(
        path.name for path in (Path(__file__).parents[2] / "optimizers").iterdir() if (path / "__init__.py").is_file()
    )
)
_OUR_FRAME = re.compile(rf"(?:^|/)optimizers/(?:hosts/\w+/)?({'|'.join(_OURS)})\b")


@dataclass(frozen=True)
class Operation:
    """One operator of a profile.

    ``seconds`` are on the processor, without those of the operators that it calls; ``callers`` are the operators and
    Python frames that led to it, the nearest first; ``kernels`` what it started on a device, with the seconds of each.
    """

    name: str
    seconds: float
    callers: tuple[str, ...] = ()
    kernels: tuple[tuple[str, float], ...] = ()


def operations_of(events: Sequence[Any]) -> tuple[list[Operation], dict[str, float]]:
    """Return the operators of ``torch.profiler.profile.events()``, and the seconds of all kernels by name."""
    operations: list[Operation] = []
    kernels: defaultdict[str, float] = defaultdict(float)
    for event in events:
        if event.device_type.name != "CPU":
            if not event.is_user_annotation:  # which spans kernels that have events of their own
                kernels[event.name] += event.device_time_total / 1e6
        elif not _FRAME.search(event.name):
            started = tuple((kernel.name, kernel.duration / 1e6) for kernel in event.kernels)
            operations.append(Operation(event.name, event.self_cpu_time_total / 1e6, _callers(event), started))
    return operations, dict(kernels)


def slices_of(operations: Sequence[Operation], kernels: dict[str, float], seconds: float) -> dict[str, float]:
    """Return the seconds of each of ``SLICES``, which add up to those that a step takes without the profiler.

    ``kernels`` are the seconds of all that ran on a device, by name; empty on a processor.
    """
    found: defaultdict[str, float] = defaultdict(float)
    rest = defaultdict(float, kernels)
    for operation in operations:
        for name, duration in operation.kernels:
            found[_kind(operation, name)] += duration
            rest[name] -= duration
        if not kernels:
            found[_kind(operation)] += operation.seconds
    for name, duration in rest.items():  # of a recorded graph, whose kernels no operator has started
        if duration > 1e-9:
            found[_kind(Operation(name, 0.0))] += duration
    found.pop("gaps", None)  # part of what is left
    busy = sum(found.values())
    # A profiler makes operators slower: more than the whole step cannot have been busy.
    scale = min(1.0, seconds / busy) if busy else 1.0
    times = {name: found[name] * scale for name in SLICES[:-1]}
    return {**times, "gaps": max(0.0, seconds - sum(times.values()))}


def _kind(operation: Operation, kernel: str = "") -> str:
    operators = [operation.name, *(name for name in operation.callers if not _FRAME.search(name))]
    names = [name.lower() for name in [*operators, kernel]]
    kinds = (kind for name in names for kind, parts in _COMPUTES if any(part in name for part in parts))
    kind = next(kinds, None) or _other(operation.name, kernel)
    folder = _our_folder(operation.callers)
    if folder in ("", "attention") or kind in ("linear", "convolution"):
        return kind
    return "ours"


def _other(name: str, kernel: str) -> str:
    if any(part in text.lower() for text in (name, kernel) for part in _COPIES):
        return "copies"
    return "gaps" if not kernel and _BOOKKEEPING.fullmatch(name) else "norm_elementwise"


def _our_folder(callers: Sequence[str]) -> str:
    """Return the folder of ours whose code is the nearest that is not torch's, or an empty text."""
    nearest = next((name for name in callers if _FRAME.search(name) and not _FOREIGN.search(name)), "")
    found = _OUR_FRAME.search(nearest)
    return found.group(1) if found else ""


def _callers(event: Any) -> tuple[str, ...]:
    names, parent = [], event.cpu_parent
    while parent is not None:
        names.append(parent.name)
        parent = parent.cpu_parent
    return tuple(names)
