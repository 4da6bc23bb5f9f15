"""The optimizations of this package on diffusers pipelines, from Python. See docs/python.md."""

from .api import Line, Report, optimize, report, restore
from .pipeline_attention import Attention
from .pipeline_compilation import Compile
from .pipeline_int8 import QuantizeInt8
from .pipeline_precision import Precision
from .pipeline_qkv_fusion import FuseQKV
from .pipeline_step_reuse import ReuseSteps
from .pipeline_token_merging import TokenMerging

__all__ = [
    "Attention",
    "Compile",
    "FuseQKV",
    "Line",
    "Precision",
    "QuantizeInt8",
    "Report",
    "ReuseSteps",
    "TokenMerging",
    "optimize",
    "report",
    "restore",
]
