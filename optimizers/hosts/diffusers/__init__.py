"""The optimizations of this package on diffusers pipelines, from Python. See docs/python.md."""

from .api import Line, Report, optimize, report, restore
from .attention.technique import Attention
from .compilation.technique import Compile
from .settings import FuseQKV, Precision, QuantizeInt8, ReuseSteps, ScheduleOnCPU, TokenMerging

__all__ = [
    "Attention",
    "Compile",
    "FuseQKV",
    "Line",
    "Precision",
    "QuantizeInt8",
    "Report",
    "ReuseSteps",
    "ScheduleOnCPU",
    "TokenMerging",
    "optimize",
    "report",
    "restore",
]
