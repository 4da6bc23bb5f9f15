"""Token merging: attention over fewer tokens (ToMe for Stable Diffusion, https://arxiv.org/abs/2303.17604).

Use, for one block at one step::

    reduction = Merging.plan(x, BlockCall(height, width, ratio, settings, step, block))
    y = reduction.restore(attention(reduction.reduce(x)))
"""

from .method import BlockCall, Reduction
from .methods import METHODS
from .settings import PRESET_NAMES, PRESETS, TOOLTIPS, TokenMergingSettings, apply_preset, level_of

__all__ = [
    "METHODS",
    "PRESETS",
    "PRESET_NAMES",
    "TOOLTIPS",
    "BlockCall",
    "Reduction",
    "TokenMergingSettings",
    "apply_preset",
    "level_of",
]
