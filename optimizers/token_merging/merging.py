"""The method ``merge``: tokens that are alike become one (ToMe for Stable Diffusion)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...core.phrases import translatable
from .grid import Partition, partition_tokens, random_offsets
from .matching import Matching, match, merge, unmerge
from .method import BlockCall, Reduction


@dataclass(frozen=True)
class Merging(Reduction):
    """Bipartite soft matching (ToMe, arXiv 2303.17604)."""

    matching: Matching
    name = "merge"
    help = "merges similar tokens (ToMe)"
    action = translatable("merge {share:.0%} of the tokens")
    shrinks_queries = True
    serves_other_layers = True
    uses_cells = True

    @classmethod
    def plan(cls, tokens: Tensor, call: BlockCall) -> Merging:
        partition = call.partition or _drawn(call, call.block, tokens.device)
        return cls(match(tokens, partition, call.ratio))

    @classmethod
    def draw(cls, call: BlockCall, blocks: Tensor) -> list[Partition]:
        destinations, sources = (part.expand(len(blocks), -1) for part in _drawn(call, blocks, blocks.device))
        return [Partition(*parts) for parts in zip(destinations.unbind(), sources.unbind(), strict=True)]

    @property
    def tokens(self) -> int:
        return self.matching.kept_as.shape[1]

    @property
    def kept(self) -> int:
        return self.matching.starts.shape[1]

    def reduce(self, x: Tensor) -> Tensor:
        return merge(x, self.matching)

    def restore(self, y: Tensor) -> Tensor:
        return unmerge(y, self.matching)


def _drawn(call: BlockCall, block: int | Tensor, device: torch.device) -> Partition:
    height, width, settings = call.height, call.width, call.settings
    sx, sy, offsets = settings.sx, settings.sy, None
    if settings.use_rand:
        seed = settings.seed
        offsets = random_offsets(height, width, sx=sx, sy=sy, seed=seed, step=call.step, block=block, device=device)
    return partition_tokens(height, width, sx=sx, sy=sy, offsets=offsets, device=device)
