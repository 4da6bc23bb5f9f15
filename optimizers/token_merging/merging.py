"""The method ``merge``: tokens that are alike become one (ToMe for Stable Diffusion)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .grid import draw
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
        partition = draw(call, call.block, tokens.device) if call.partition is None else call.partition
        return cls(match(tokens, partition, call.ratio))

    @property
    def tokens(self) -> int:
        """How many tokens it was made for."""
        return self.matching.kept_as.shape[1]

    @property
    def kept(self) -> int:
        """How many tokens are left."""
        return self.matching.starts.shape[1]

    def reduce(self, x: Tensor) -> Tensor:
        """Average the tokens of each slot."""
        return merge(x, self.matching)

    def restore(self, y: Tensor) -> Tensor:
        """Give each token its slot's value."""
        return unmerge(y, self.matching)
