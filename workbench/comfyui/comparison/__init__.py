"""Compare two MODELs, or two VAEs, in ComfyUI: time, memory and pictures, with the noise floor beside them."""

from .compare import Progress, compare, node_progress
from .findings import Comparison
from .report import environment, measured_on, record, summary_lines
from .rounds import ComparisonSettings, Side
from .saving import save

__all__ = [
    "Comparison",
    "ComparisonSettings",
    "Progress",
    "Side",
    "compare",
    "environment",
    "measured_on",
    "node_progress",
    "record",
    "save",
    "summary_lines",
]
