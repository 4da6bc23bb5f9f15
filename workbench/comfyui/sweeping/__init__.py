"""A sweep over settings in ComfyUI: each cell is a comparison of the cell's nodes with the plain model."""

from .cells import Bench
from .run import Finished, SweepPlan, run_sweep, upstream
from .storages import storage_named

__all__ = ["Bench", "Finished", "SweepPlan", "run_sweep", "storage_named", "upstream"]
