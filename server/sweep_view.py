"""What the page shows of a sweep, updated after every cell."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence

from PIL import Image

from ..core.files import NotWritten, write_atomically
from ..optimizers.hosts.comfyui.reporting import Payload, send
from ..workbench.comfyui.comparison import Comparison
from ..workbench.comfyui.output_files import Entry, path_of
from ..workbench.comfyui.sweeping.cells import Bench
from ..workbench.sweep.axes import Cell, cell_key, describe_cell
from ..workbench.sweep.results import Result, pareto_front
from .recipes import shown_steps

SWEEP_EVENT = "paceline.sweep"
_MOST_CELLS = 500
"""Of a larger sweep, the page is shown the last ones."""
_LONGEST_SIDE = 512
"""Pixels of a picture that is shown when the pointer is over its cell."""


class SweepView:
    """Shows a sweep at its node; ``limit`` is the largest difference of a preset."""

    def __init__(self, node: str | None, study: str, limit: float, bench: Bench) -> None:
        self._node, self._study, self._limit, self._bench = node, study, limit, bench
        self._results: Sequence[Result] = ()
        self._preset: str | None = None
        self._running = True
        self.total = 0

    @property
    def done(self) -> int:
        return len(self._results)

    def compared(self, cell: Cell, found: Comparison) -> None:
        """Keep the farthest picture of a cell, for as long as ComfyUI runs; its numbers count without it too."""
        picture = Image.fromarray(found.pictures.optimized[found.evidence.worst].numpy())
        picture.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
        try:
            write_atomically(path_of(self._entry(cell)), lambda path: picture.save(path, format="PNG"))
        except NotWritten as error:
            logging.warning("Paceline: the picture of a cell is not shown: %s", error)

    def watch(self, results: Sequence[Result], total: int) -> None:
        self._results, self.total = results, total
        self._send()

    def stop(self, preset: str | None = None) -> None:
        """Show that nothing more is measured now, and the name of the preset that was saved."""
        self._running, self._preset = False, preset
        self._send()

    def payload(self) -> Payload:
        """Return what the page shows: ``Sweep`` in web/js/measurements.d.ts."""
        best = {id(one) for one in pareto_front(self._results)}
        return {
            "study": self._study,
            "total": self.total,
            "limit": self._limit,
            "seconds_per_step": _seconds_per_step(self._results),
            "running": self._running,
            "preset": self._preset,
            "cells": [self._cell(one, id(one) in best) for one in self._results[-_MOST_CELLS:]],
        }

    def _send(self) -> None:
        send(SWEEP_EVENT, self._node, {"sweep": self.payload()})

    def _entry(self, cell: Cell) -> Entry:
        """Return where a cell's picture is, or would be: the next run of the same study finds it there."""
        digest = hashlib.sha256(f"{self._study}\n{cell_key(cell)}".encode()).hexdigest()[:32]
        return {"filename": f"{digest}.png", "subfolder": "paceline_cells", "type": "temp"}

    def _cell(self, one: Result, best: bool) -> Payload:
        (low, high), entry = one.interval or (None, None), self._entry(one.cell)
        return {
            "label": describe_cell(one.cell),
            "state": one.state,
            "speedup": one.speedup,
            "low": low,
            "high": high,
            "difference": one.difference,
            "control": one.control,
            "best": best,
            "text": one.text,
            "picture": entry if path_of(entry).is_file() else None,
            "steps": shown_steps(self._bench.steps_of(one.cell)),
        }


def _seconds_per_step(results: Sequence[Result]) -> float | None:
    """Return what one step of both sides takes, on average over the cells; None before the first one."""
    steps = [
        one.seconds + one.numbers["baseline_seconds"]
        for one in results
        if one.seconds and "baseline_seconds" in one.numbers
    ]
    return sum(steps) / len(steps) if steps else None
