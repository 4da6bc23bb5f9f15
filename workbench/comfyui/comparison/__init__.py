"""Compare two MODELs, or two VAEs, in ComfyUI: time, memory and pictures, with the noise floor beside them."""

from .compare import compare
from .findings import Comparison
from .report import environment, measured_on, record, save, summary_lines
from .rounds import ComparisonSettings, Side

__all__ = [
    "Comparison",
    "ComparisonSettings",
    "Side",
    "compare",
    "environment",
    "measured_on",
    "record",
    "save",
    "summary_lines",
]
