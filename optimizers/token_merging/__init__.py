"""Token merging: attention over fewer tokens (ToMe for Stable Diffusion, https://arxiv.org/abs/2303.17604).

Use, for one block at one step::

    offsets = random_offsets(height, width, seed=seed, step=step, block=block, device=x.device)
    partition = partition_tokens(height, width, offsets=offsets, device=x.device)
    matching = match(x, partition, ratio=0.5)
    y = unmerge(attention(merge(x, matching)), matching)
"""

from .grid import Partition, partition_tokens, random_offsets
from .matching import Matching, MergeMode, match, merge, merge_count, unmerge
from .settings import TokenMergingSettings

__all__ = [
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
