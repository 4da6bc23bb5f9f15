"""Measure many settings: all cells of a grid, or a search for the best ones. Knows no host."""

from .plot import pareto_picture
from .results import Result, best, pareto_front, to_csv, to_markdown
from .space import Cell, Range, Space, cell_key, nodes_of, parse_space, picture_of
from .storage import Storage, sqlite_storage
from .study import MODES, Sweep, SweepSettings

__all__ = [
    "MODES",
    "Cell",
    "Range",
    "Result",
    "Space",
    "Storage",
    "Sweep",
    "SweepSettings",
    "best",
    "cell_key",
    "nodes_of",
    "pareto_front",
    "pareto_picture",
    "parse_space",
    "picture_of",
    "sqlite_storage",
    "to_csv",
    "to_markdown",
]
