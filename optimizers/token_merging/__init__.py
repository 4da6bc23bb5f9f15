"""Token merging: attention over fewer tokens (ToMe for Stable Diffusion, https://arxiv.org/abs/2303.17604).

Use, for one block at one step::

    reduction = Merging.plan(x, BlockCall(height, width, ratio, settings, step, block))
    y = reduction.restore(attention(reduction.reduce(x)))
"""

from .automatic import Automatic
from .grid import Partition, partition_tokens, random_offsets
from .kv_downsample import KVDownsampling, downsample_tokens, downsampled_side, kept_tokens
from .local_merge import LocalMatching, LocalMerging, match_locally, merge_locally, unmerge_locally, windows_of
from .matching import Matching, MergeMode, match, merge, merge_count, unmerge
from .merging import Merging
from .method import METHODS, BlockCall, Method, Reduction
from .settings import PRESET_NAMES, PRESETS, RAMPS, TokenMergingSettings, apply_preset

METHODS.update({method.name: method for method in (Automatic, Merging, LocalMerging, KVDownsampling)})

__all__ = [
    "METHODS",
    "PRESETS",
    "PRESET_NAMES",
    "RAMPS",
    "Automatic",
    "BlockCall",
    "KVDownsampling",
    "LocalMatching",
    "LocalMerging",
    "Matching",
    "MergeMode",
    "Merging",
    "Method",
    "Partition",
    "Reduction",
    "TokenMergingSettings",
    "apply_preset",
    "downsample_tokens",
    "downsampled_side",
    "kept_tokens",
    "match",
    "match_locally",
    "merge",
    "merge_count",
    "merge_locally",
    "partition_tokens",
    "random_offsets",
    "unmerge",
    "unmerge_locally",
    "windows_of",
]
