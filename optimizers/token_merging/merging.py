"""The method ``merge``: tokens that are alike become one (ToMe for Stable Diffusion)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .grid import partition_tokens, random_offsets
from .matching import Matching, match, merge, unmerge
from .method import BlockCall, Reduction


@dataclass(frozen=True)
class Merging(Reduction):
    """Bipartite soft matching (ToMe, arXiv 2303.17604)."""

    matching: Matching
    name = "merge"
    help = "tokens that are alike (ToMe)"
    action = "merge {} of the tokens"
    shrinks_queries = True
    serves_other_layers = True
    needs_matching = True
    uses_cells = True

    @classmethod
    def plan(cls, tokens: Tensor, call: BlockCall) -> Merging:
        """Draw the destinations, and match the other tokens with them."""
        height, width, ratio, settings, step, block = call
        sx, sy, device = settings.sx, settings.sy, tokens.device
        offsets = None
        if settings.use_rand:
            seed = settings.seed
            offsets = random_offsets(height, width, sx=sx, sy=sy, seed=seed, step=step, block=block, device=device)
        return cls(match(tokens, partition_tokens(height, width, sx=sx, sy=sy, offsets=offsets, device=device), ratio))

    @property
    def tokens(self) -> int:
        """How many tokens it was made for."""
        return self.matching.slot_of_token.shape[1]

    @property
    def kept(self) -> int:
        """How many tokens are left."""
        return self.matching.token_of_slot.shape[1]

    def reduce(self, x: Tensor) -> Tensor:
        """Average the tokens of each slot."""
        return merge(x, self.matching)

    def restore(self, y: Tensor) -> Tensor:
        """Give each token its slot's value."""
        return unmerge(y, self.matching)
