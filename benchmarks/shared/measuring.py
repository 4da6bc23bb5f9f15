"""Measuring that can be trusted on a busy machine.

Variants take turns within every round, so that a slow moment hits all of them; the speedup is the median of the
rounds' own ratios. Each row also has the processor time, which other processes disturb less than the clock.
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from .record import Row, keep
from .roof import counting

SHORTEST_SAMPLE = 0.01
"""Seconds. Quicker variants are run several times per sample, because clock and scheduler have a grain."""

Variant = Callable[[], Any]


class PeakMemory(TorchDispatchMode):
    """Follows the memory of tensors that operators return, on any device."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._live: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator and count what is alive after it."""
        given = {value.untyped_storage()._cdata for value in args if isinstance(value, torch.Tensor)}
        out = func(*args, **(kwargs or {}))
        for value in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(value, torch.Tensor):
                storage = value.untyped_storage()
                if storage._cdata not in given:  # otherwise a view, or an update in place
                    self._live[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self._live = {key: entry for key, entry in self._live.items() if not entry[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self._live.values()))
        return out


def measure(
    work: str,
    variants: Mapping[str, Variant],
    baseline: str,
    *,
    rounds: int = 7,
    quality: Mapping[str, Mapping[str, float]] | None = None,
    speed: float | None = None,
    long: bool = False,
    follow_tensors: bool = True,
    seconds: float = math.inf,
) -> list[Row]:
    """Time ``variants`` against each other.

    Args:
        work: what all of them do.
        variants: functions without arguments, by name.
        baseline: name of the variant that speedups refer to.
        rounds: samples per variant.
        quality: numbers to put into a variant's row.
        speed: operations a second of this device's largest matrix product. The roof is the time that the baseline's
            multiplications would take at that speed.
        long: one execution takes seconds to minutes, and was made before. There are no warm-ups, and the memory is
            measured in the timed executions: following the tensors costs all variants alike about a second there.
        follow_tensors: whether a processor's memory is measured, which torch.compile with one graph does not allow.
        seconds: no round begins after so long, but for the first.
    """
    peaks: dict[str, int] = dict.fromkeys(variants, 0)
    counter = counting()
    counted = False

    def counts(name: str) -> AbstractContextManager[Any]:
        nonlocal counted
        wanted = speed is not None and name == baseline and not counted
        counted = counted or wanted
        return counter if wanted else nullcontext()

    def sample_with_memory(name: str) -> tuple[float, float]:
        taken = []
        with counts(name):
            peak = peak_memory(lambda: taken.append(_sample(variants[name], 1)), follow_tensors)
        peaks[name] = max(peaks[name], peak)
        return taken[0]

    begun = time.perf_counter()
    repeats = dict.fromkeys(variants, 1)
    for name, function in variants.items() if not long else ():
        sample_with_memory(name)
        repeats[name] = max(1, round(SHORTEST_SAMPLE / _sample(function, 1)[0]))
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    order = list(variants)

    def rows_so_far() -> list[Row]:
        shortest = counter.get_total_flops() / speed if speed else None
        rows = []
        for name, taken in samples.items():
            walls = [wall for wall, _ in taken]
            median = statistics.median(walls)
            ratios = [base / wall for (base, _), wall in zip(samples[baseline], walls, strict=True)]
            rows.append(
                Row(
                    name=name,
                    work=work,
                    seconds_median=median,
                    seconds_min=min(walls),
                    seconds_max=max(walls),
                    cpu_seconds_median=statistics.median(cpu for _, cpu in taken),
                    speedup=statistics.median(ratios),
                    peak_memory_bytes=peaks[name] or None,
                    quality=dict((quality or {}).get(name, {})),
                    roof_share=shortest / median if shortest else None,
                    rounds=len(taken),
                )
            )
        return rows

    for number in range(rounds):
        if number and time.perf_counter() - begun > seconds:
            break
        for name in order:
            samples[name].append(sample_with_memory(name) if long else _sample(variants[name], repeats[name]))
        order = [*order[1:], order[0]]  # nobody always comes after the same one
        keep((asdict(row) for row in rows_so_far()), baseline)
    return rows_so_far()


def peak_memory(function: Variant, follow_tensors: bool = True) -> int:
    """Return the most bytes that tensors made by one call of ``function`` hold at once; on a GPU with workspaces.

    0 where it is not measured: without a GPU and ``follow_tensors``.
    """
    if torch.cuda.is_available():
        wait()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        wait()
        return torch.cuda.max_memory_allocated() - before
    if not follow_tensors:
        function()
        return 0
    with PeakMemory() as memory:
        function()
    return memory.peak


def relative_error(result: torch.Tensor, reference: torch.Tensor) -> float:
    """Return the L2 norm of the difference relative to that of ``reference``."""
    return float((result.double() - reference.double()).norm() / reference.double().norm())


def _sample(function: Variant, repeats: int) -> tuple[float, float]:
    """Return wall and processor seconds of one execution."""
    gc.collect()
    wait()
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(repeats):
        function()
    wait()
    return (time.perf_counter() - wall) / repeats, (time.process_time() - cpu) / repeats


def wait() -> None:
    """Wait until the GPU, if there is one, has done all that it was given."""
    from paceline.core.devices import synchronize  # `record` has made it importable

    synchronize(torch.device("cuda" if torch.cuda.is_available() else "cpu"))


def arguments(
    description: str,
    only: tuple[str, ...] = (),
    more: Callable[[argparse.ArgumentParser], object] = lambda parser: None,
) -> argparse.Namespace:
    """Read the command line that all benchmarks share: ``--quick``, ``--json PATH``, ``--threads N``.

    Args:
        description: one sentence for ``--help``.
        only: names of the benchmark's parts, of which ``--only`` selects one.
        more: adds what only this benchmark has.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="small sizes: minutes on two processor cores")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the results to this file")
    parser.add_argument("--threads", type=int, metavar="N", help="processor threads that torch may use")
    if only:
        parser.add_argument("--only", choices=only, help="run this part only")
    more(parser)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    return options
