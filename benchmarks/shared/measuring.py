"""Measuring that can be trusted on a busy machine.

Variants take turns within every round, so that a slow moment hits all of them; the speedup is the median of the
rounds' own ratios. Each row also has the processor time, which other processes disturb less than the clock.
"""

from __future__ import annotations

import argparse
import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from .record import Row, keep
from .roof import operations

SHORTEST_SAMPLE = 0.01
"""Seconds. Quicker variants are run several times per sample, because clock and scheduler have a grain."""

Variant = Callable[[], Any]


def measure(
    work: str,
    variants: Mapping[str, Variant],
    baseline: str,
    *,
    rounds: int = 7,
    quality: Mapping[str, Mapping[str, float]] | None = None,
    speed: float | None = None,
    long: bool = False,
    seconds: float = math.inf,
) -> list[Row]:
    """Time ``variants`` against each other; on a GPU also the most memory that an execution holds.

    Args:
        work: what all of them do.
        variants: functions without arguments, by name.
        baseline: name of the variant that speedups refer to.
        rounds: samples per variant.
        quality: numbers to put into a variant's row.
        speed: operations a second of this device's largest matrix product. The roof is the time that the baseline's
            multiplications would take at that speed.
        long: one execution takes seconds to minutes, and was made before: it is neither warmed up nor repeated.
        seconds: no round begins after so long, but for the first.
    """
    begun, on_gpu = time.perf_counter(), torch.cuda.is_available()
    shortest = operations(variants[baseline]) / speed if speed else None
    repeats = dict.fromkeys(variants, 1)
    for name, function in variants.items() if not long else ():
        function()
        repeats[name] = max(1, round(SHORTEST_SAMPLE / _sample(function, 1)[0]))
    peaks: dict[str, int] = dict.fromkeys(variants, 0)
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    order = list(variants)

    def row_of(name: str) -> Row:
        walls = [wall for wall, _ in samples[name]]
        ratios = [base / wall for (base, _), wall in zip(samples[baseline], walls, strict=True)]
        median = statistics.median(walls)
        return Row(
            name=name,
            work=work,
            seconds_median=median,
            seconds_min=min(walls),
            seconds_max=max(walls),
            cpu_seconds_median=statistics.median(cpu for _, cpu in samples[name]),
            speedup=statistics.median(ratios),
            peak_memory_bytes=peaks[name] or None,
            quality=dict((quality or {}).get(name, {})),
            roof_share=shortest / median if shortest else None,
            rounds=len(walls),
        )

    for number in range(rounds):
        if number and time.perf_counter() - begun > seconds:
            break
        for name in order:
            before = peak_memory(True) if on_gpu else 0
            samples[name].append(_sample(variants[name], repeats[name]))
            peaks[name] = max(peaks[name], peak_memory() - before if on_gpu else 0)
        random.Random(number).shuffle(order)  # none always comes after the same other one
        keep((asdict(row_of(name)) for name in variants), baseline)
    return [row_of(name) for name in variants]


def peak_memory(anew: bool = False) -> int:
    """Return the most bytes of a GPU that were held at once, with workspaces; ``anew``: from now on."""
    wait()
    if anew:
        torch.cuda.reset_peak_memory_stats()
    return torch.cuda.max_memory_allocated()


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
    from paceline.optimizers.core.devices import synchronize  # `record` has made it importable

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
