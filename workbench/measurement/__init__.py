"""How much faster, how much memory, how far apart two pictures are, and what that means in words. Knows no host."""

from .evidence import Evidence, FewerSteps
from .farthest import Farthest, farthest
from .lpips import Lpips, WrongWeights, load_lpips
from .memory import PeakMemory
from .picture import comparison_sheet
from .quality import Distance, compare_pictures, to_8_bit
from .timing import MOST_ROUNDS, Speedup, interleaved, measure_speedup
from .verdict import Verdict, judge
from .verdict_text import AS_GOOD

__all__ = [
    "AS_GOOD",
    "MOST_ROUNDS",
    "Distance",
    "Evidence",
    "Farthest",
    "FewerSteps",
    "Lpips",
    "PeakMemory",
    "Speedup",
    "Verdict",
    "WrongWeights",
    "compare_pictures",
    "comparison_sheet",
    "farthest",
    "interleaved",
    "judge",
    "load_lpips",
    "measure_speedup",
    "to_8_bit",
]
