"""The optimizations of this package on diffusers pipelines, from Python. See docs/python.md."""

from .api import Line, Report, optimize, report, restore
from .attention.technique import Attention
from .compilation.technique import Compile
from .precision.technique import Precision
from .qkv_fusion.technique import FuseQKV
from .quantization.technique import QuantizeInt8
from .schedule_on_cpu.technique import ScheduleOnCPU
from .step_reuse.technique import ReuseSteps
from .token_merging.technique import TokenMerging

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
