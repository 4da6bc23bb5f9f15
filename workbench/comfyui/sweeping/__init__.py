"""A sweep over settings in ComfyUI: each cell is a comparison of the cell's nodes with the plain model."""

from .cells import Bench
from .run import Finished, run_sweep, upstream

__all__ = ["Bench", "Finished", "run_sweep", "upstream"]
