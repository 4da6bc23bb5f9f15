"""Feed-forward layers on merged tokens, for the length of one model call.

ComfyUI has no patch point there. The layers' ``forward`` is shadowed on the live network until the call returns, as
ComfyUI's own compile node does with modules, so no other clone ever sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from ....activity import Activity
from ....token_merging import Reduction
from ..unet import BlockKey, block_name, transformer_blocks


@contextmanager
def merged_feed_forward(
    network: Any, blocks: Container[BlockKey], reductions: Mapping[BlockKey, Reduction], activity: Activity
) -> Iterator[None]:
    """Run the feed-forward layers of ``blocks`` on the tokens that ``reductions`` leave at the time they run."""
    changed: list[tuple[Any, Any]] = []
    try:
        for description, block in transformer_blocks(network):
            if description.key in blocks:
                changed.append((block.ff, block.ff.__dict__.get("forward")))
                block.ff.forward = _merged(block.ff.forward, description.key, reductions, activity)
        yield
    finally:
        for layer, previous in changed:
            if previous is None:
                del layer.forward
            else:
                layer.forward = previous


def _merged(
    forward: Callable[[torch.Tensor], torch.Tensor],
    key: BlockKey,
    reductions: Mapping[BlockKey, Reduction],
    activity: Activity,
) -> Callable[[torch.Tensor], torch.Tensor]:
    def merged_forward(tokens: torch.Tensor) -> torch.Tensor:
        reduction = reductions.get(key)
        if reduction is None or not reduction.shrinks_queries:  # left alone: counted where that was decided
            return forward(tokens)
        activity.use(block_name(key), reduction.tokens, reduction.kept)
        return reduction.restore(forward(reduction.reduce(tokens)))

    return merged_forward
