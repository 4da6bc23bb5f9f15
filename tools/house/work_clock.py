"""Work instead of time: what is computed is the same every time, however busy the machine is.

Quantize int8 measures float and int8 products and takes int8 where that is quicker. While ``WorkClock`` is on, those
measurements read this clock: a multiplication in floating point takes four units, one in int8 takes one, everything
else takes none. So int8 is always quicker, and which layers are chosen depends on their error alone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

_UNIT = 1e-6  # seconds; so long that a measurement that goes on for a certain time ends after a few rounds
_COST = {"aten::_int_mm": 1, "aten::mm": 4, "aten::addmm": 4, "aten::bmm": 4, "aten::linear": 4, "aten::matmul": 4}
_active: list[WorkClock] = []
_CLOCKS = {"perf_counter": 1, "perf_counter_ns": 10**9, "thread_time": 1}  # name, and its units in a second


class WorkClock(TorchDispatchMode):
    """As a context manager: Python's clocks tell the work done inside. Needs ``install()`` before."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def __enter__(self) -> Any:
        """Start at zero."""
        _active.append(self)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        """Go back to the clock before."""
        _active.remove(self)
        super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator and add its work."""
        result = func(*args, **(kwargs or {}))
        name = func._schema.name
        if name in _COST:
            left = args[1] if name == "aten::addmm" else args[0]
            self.seconds += result.numel() * left.shape[-1] * _COST[name] * _UNIT
        return result


def install() -> None:
    """Put the clock in place of those of Python in this process; call it before the pack is imported."""
    for name, units in _CLOCKS.items():
        setattr(time, name, partial(_now, getattr(time, name), units))


def _now(real: Callable[[], float], units: int) -> float:
    return type(real())(_active[-1].seconds * units) if _active else real()


class Operators(TorchDispatchMode):
    """As a context manager: counts the operators that do the work, products and attention."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator and count it."""
        name = func._schema.name
        if name in _COST or "attention" in name or "softmax" in name or "convolution" in name:
            self.counts[name.removeprefix("aten::")] += 1
        return func(*args, **(kwargs or {}))

    def __str__(self) -> str:
        """Return the counts in one line."""
        return ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))


def graphs() -> int:
    """Return how many graphs torch.compile has made since the last call."""
    from torch._dynamo.utils import counters

    made = counters["stats"]["unique_graphs"]
    counters.clear()
    return int(made)
