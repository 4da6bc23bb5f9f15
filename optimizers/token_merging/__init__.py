"""Token merging: attention over fewer tokens (ToMe for Stable Diffusion, https://arxiv.org/abs/2303.17604).

Use, for one block at one step::

    offsets = random_offsets(height, width, seed=seed, step=step, block=block, device=x.device)
    partition = partition_tokens(height, width, offsets=offsets, device=x.device)
    matching = match(x, partition, ratio=0.5)
    y = unmerge(attention(merge(x, matching)), matching)
"""

from .automatic import choose_method
from .grid import Partition, partition_tokens, random_offsets
from .kv_downsample import downsample_tokens, downsampled_side, kept_tokens
from .local_merge import LocalMatching, match_locally, merge_locally, unmerge_locally, windows_of
from .matching import Matching, MergeMode, match, merge, merge_count, unmerge
from .presets import PRESET_NAMES, PRESETS, apply_preset
from .reduction import KVDownsampling, LocalMerging, Merging, Reduction, plan_reduction
from .settings import METHODS, RAMPS, TokenMergingSettings

__all__ = [
    "METHODS",
    "PRESETS",
    "PRESET_NAMES",
    "apply_preset",
    "RAMPS",
    "choose_method",
    "LocalMatching",
    "LocalMerging",
    "Merging",
    "Reduction",
    "KVDownsampling",
    "downsample_tokens",
    "downsampled_side",
    "kept_tokens",
    "match_locally",
    "merge_locally",
    "plan_reduction",
    "unmerge_locally",
    "windows_of",
    "Matching",
    "MergeMode",
    "Partition",
    "TokenMergingSettings",
    "match",
    "merge",
    "merge_count",
    "partition_tokens",
    "random_offsets",
    "unmerge",
]
