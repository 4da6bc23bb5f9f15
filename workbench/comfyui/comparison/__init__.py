"""Compare two MODELs, or two VAEs, in ComfyUI: time, memory and pictures, with the noise floor beside them."""

from .compare import Comparison, ComparisonSettings, compare
from .lpips_weights import load_lpips
from .rounds import Variant
from .sampling import SamplingJob, sampler_names, scheduler_names
from .saving import find_place, save
from .words import record, summary_lines, surroundings

__all__ = [
    "Comparison",
    "ComparisonSettings",
    "SamplingJob",
    "Variant",
    "compare",
    "find_place",
    "load_lpips",
    "record",
    "sampler_names",
    "save",
    "scheduler_names",
    "summary_lines",
    "surroundings",
]
