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
    warmups: int = 1,
    quality: Mapping[str, Mapping[str, float]] | None = None,
    roof: str | None = None,
    speed: float | None = None,
    memory_while_timed: bool = False,
    follow_tensors: bool = True,
) -> list[Row]:
    """Time ``variants`` against each other.

    Args:
        work: what all of them do.
        variants: functions without arguments, by name.
        baseline: name of the variant that speedups refer to.
        rounds: samples per variant.
        warmups: executions before, which do not count; one more is made to measure the memory. With 0, nothing is
            run several times per sample, so only for work that takes long.
        quality: numbers to put into a variant's row.
        roof: name of the variant that does only the unavoidable part of the work; it gets no row.
        speed: operations a second of this device's largest matrix product. The roof is then the time that the
            baseline's multiplications would take at that speed.
        memory_while_timed: measure the memory in the timed executions instead of in one more. For work that takes
            minutes: following the tensors costs all variants alike about a second there.
        follow_tensors: whether a processor's memory is measured, which torch.compile with one graph does not allow.
    """
    repeats: dict[str, int] = {}
    peaks: dict[str, int] = dict.fromkeys(variants, 0)
    counter = counting()
    counted = False

    def counts(name: str) -> AbstractContextManager[Any]:
        nonlocal counted
        wanted = speed is not None and name == baseline and not counted
        counted = counted or wanted
        return counter if wanted else nullcontext()

    def sample_with_memory(name: str) -> tuple[float, float]:
        with counts(name), PeakMemory() as memory:
            taken = _sample(variants[name], 1)
        peaks[name] = max(peaks[name], memory.peak)
        return taken

    for name, function in variants.items():
        if not memory_while_timed:
            with counts(name):
                peaks[name] = peak_memory(function, follow_tensors)  # the first warm-up
        seconds = math.inf
        for _ in range(warmups):
            seconds, _ = _sample(function, 1)
        repeats[name] = max(1, round(SHORTEST_SAMPLE / seconds))
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    order = list(variants)

    def rows_so_far() -> list[Row]:
        medians = {name: statistics.median(wall for wall, _ in taken) for name, taken in samples.items()}
        shortest = medians[roof] if roof else counter.get_total_flops() / speed if speed else None
        rows = []
        for name, taken in samples.items():
            if name == roof:
                continue
            walls = [wall for wall, _ in taken]
            ratios = [base / wall for (base, _), wall in zip(samples[baseline], walls, strict=True)]
            rows.append(
                Row(
                    name=name,
                    work=work,
                    seconds_median=medians[name],
                    seconds_min=min(walls),
                    seconds_max=max(walls),
                    cpu_seconds_median=statistics.median(cpu for _, cpu in taken),
                    speedup=statistics.median(ratios),
                    peak_memory_bytes=peaks[name] or None,
                    quality=dict((quality or {}).get(name, {})),
                    roof_share=shortest / medians[name] if shortest else None,
                    rounds=len(taken),
                )
            )
        return rows

    for _ in range(rounds):
        for name in order:
            sample = sample_with_memory(name) if memory_while_timed else _sample(variants[name], repeats[name])
            samples[name].append(sample)
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
    latents: bool = False,
    more: Callable[[argparse.ArgumentParser], object] = lambda parser: None,
) -> argparse.Namespace:
    """Read the command line that all benchmarks share: ``--quick``, ``--json PATH``, ``--threads N``.

    Args:
        description: one sentence for ``--help``.
        only: names of the benchmark's parts, of which ``--only`` selects one.
        latents: whether ``--latents`` chooses the sides of the latents, and ``--variants`` what is run.
        more: adds what only this benchmark has.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="small sizes: minutes on two processor cores")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the results to this file")
    parser.add_argument("--threads", type=int, metavar="N", help="processor threads that torch may use")
    if only:
        parser.add_argument("--only", choices=only, help="run this part only")
    if latents:
        parser.add_argument("--latents", type=int, nargs="+", metavar="SIDE", help="sides of the latents")
        # Two, so that what is shared between steps is shared.
        parser.add_argument("--steps", type=int, default=2, metavar="N", help="sampling steps in each run")
        parser.add_argument("--rounds", type=int, metavar="N", help="samples of each variant")
        parser.add_argument("--variants", nargs="+", metavar="PART", help="those of this name, or containing it")
        parser.add_argument("--long", action="store_true", help="measure memory while timing: for steps of minutes")
    more(parser)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    return options
