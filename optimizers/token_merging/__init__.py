"""Token merging: attention over fewer tokens (ToMe for Stable Diffusion, https://arxiv.org/abs/2303.17604).

Use, for one block at one step::

    reduction = Merging.plan(x, BlockCall(height, width, ratio, settings, step, block))
    y = reduction.restore(attention(reduction.reduce(x)))
"""

from .automatic import Automatic
from .kv_downsample import KVDownsampling
from .local_merge import LocalMerging
from .merging import Merging
from .method import METHODS, BlockCall, Reduction
from .settings import PRESET_NAMES, PRESETS, TokenMergingSettings, apply_preset

METHODS.update({method.name: method for method in (Automatic, Merging, LocalMerging, KVDownsampling)})

__all__ = [
    "METHODS",
    "PRESETS",
    "PRESET_NAMES",
    "BlockCall",
    "Reduction",
    "TokenMergingSettings",
    "apply_preset",
]
