"""How much faster, how much memory, how far apart two pictures are, and what that means in words. Knows no host."""

from .lpips import Lpips, WrongWeights, load_lpips
from .memory import PeakMemory
from .picture import comparison_sheet
from .quality import Distance, compare_pictures, to_8_bit
from .timing import MOST_ROUNDS, Speedup, interleaved, measure_speedup
from .verdict import Evidence, Verdict, judge

__all__ = [
    "MOST_ROUNDS",
    "Distance",
    "Evidence",
    "Lpips",
    "PeakMemory",
    "Speedup",
    "Verdict",
    "WrongWeights",
    "compare_pictures",
    "comparison_sheet",
    "interleaved",
    "judge",
    "load_lpips",
    "measure_speedup",
    "to_8_bit",
]
