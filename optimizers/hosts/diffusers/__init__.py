"""The optimisations of this package on diffusers pipelines, from Python. See docs/python.md."""

from .api import Line, Report, optimize, report, restore
from .attention import Attention
from .compilation import Compile
from .settings import FuseQKV, Precision, QuantizeInt8, ScheduleOnCPU, TokenMerging

__all__ = [
    "Attention",
    "Compile",
    "FuseQKV",
    "Line",
    "Precision",
    "QuantizeInt8",
    "Report",
    "ScheduleOnCPU",
    "TokenMerging",
    "optimize",
    "report",
    "restore",
]
