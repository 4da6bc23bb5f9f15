"""Run one variant of a pipeline at one size and batch, and time it. Running out of memory is a result."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from ...core.devices import is_out_of_memory, synchronize
from ...core.errors import PacelineError, error_line
from ...optimizers.hosts.diffusers.api import optimize
from ..measurement.memory import PeakMemory
from .pipelines import NamedPipeline
from .variants import Variant

DONE, OUT_OF_MEMORY, NOT_POSSIBLE = "done", "OOM", "not possible"

PROMPT = "a photo of an astronaut riding a horse on mars"


@dataclass(frozen=True)
class Cell:
    """One entry of a table: a variant's name, the side of the picture in pixels, and pictures at once."""

    variant: str
    size: int
    batch: int


@dataclass(frozen=True)
class Measurement(Cell):
    """What came of a cell.

    Attributes:
        state: ``done``, ``OOM`` or ``not possible``, for which there is a ``reason``.
        seconds: median of one call of the pipeline, with decoding; ``seconds_least``, ``seconds_most`` of the rounds.
        first_seconds: of the first call, which compiles.
        iterations: denoising steps of one call.
        peak_bytes: most memory that torch had given out on the device; None on a CPU.
        report: what each optimization did.
    """

    state: str
    seconds: float | None = None
    seconds_least: float | None = None
    seconds_most: float | None = None
    first_seconds: float | None = None
    iterations: int | None = None
    peak_bytes: int | None = None
    report: list[str] = field(default_factory=list)
    reason: str = ""

    @property
    def cell(self) -> Cell:
        return Cell(self.variant, self.size, self.batch)

    @property
    def per_second(self) -> float | None:
        """Denoising steps per second."""
        return self.iterations / self.seconds if self.seconds and self.iterations else None

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "iterations_per_second": self.per_second}


def measure(
    pipeline: NamedPipeline,
    variant: Variant,
    cell: Cell,
    steps: int,
    rounds: int,
    tick: Callable[[], None] = lambda: None,
) -> Measurement:
    """Time ``rounds`` calls after one that is not timed; the pipeline is left as it was. ``tick`` follows each call."""
    try:
        return Measurement(**asdict(cell), **_timed(pipeline, variant, cell, steps, rounds, tick))
    except PacelineError as error:
        return Measurement(**asdict(cell), state=NOT_POSSIBLE, reason=str(error))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return Measurement(**asdict(cell), state=OUT_OF_MEMORY, reason=error_line(error))
    finally:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _timed(
    pipeline: NamedPipeline, variant: Variant, cell: Cell, steps: int, rounds: int, tick: Callable[[], None]
) -> dict[str, Any]:
    device = torch.device(pipeline.denoiser.device)
    with optimize(pipeline.pipe, *variant.settings) as report:
        seconds, calls = [], 0

        def count(*_: object) -> None:  # pipelines make more or fewer calls than the steps that they were asked for
            nonlocal calls
            calls += 1

        with PeakMemory(device) as memory, pipeline.denoiser.register_forward_pre_hook(count) as counter:
            for _ in range(1 + rounds):
                synchronize(device)
                begun = time.perf_counter()
                pipeline.call([PROMPT] * cell.batch, cell.size, steps, output_type="pt")
                synchronize(device)
                seconds.append(time.perf_counter() - begun)
                counter.remove()  # of the first call only
                tick()
        lines = str(report).splitlines()
    first, *timed = seconds
    return {
        "state": DONE,
        "seconds": statistics.median(timed),
        "seconds_least": min(timed),
        "seconds_most": max(timed),
        "first_seconds": first,
        "iterations": calls,
        "peak_bytes": memory.device_bytes,
        "report": lines,
    }
