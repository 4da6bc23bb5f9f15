"""Feed-forward layers on merged tokens, for the length of one model call.

ComfyUI has no patch point there. The layers' ``forward`` is shadowed on the live network until the call returns, as
ComfyUI's own compile node does with modules, so no other clone ever sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch

from .....core.activity import Activity
from ....token_merging import Reduction
from ..unet import BlockKey, block_name, transformer_blocks

Forward = Callable[[torch.Tensor], torch.Tensor]


class _Call:
    """What the layers of one network read in the model call that runs."""

    def __init__(self) -> None:
        self.reductions: Mapping[BlockKey, Reduction] = {}
        self.activity = Activity()


class MergedFeedForwards:
    """Runs feed-forward layers on the tokens that are left.

    The functions that take the layers' place are made once for each network and read what changes from call to call:
    compiled graphs are guarded on the functions, and a new one would be a new graph.
    """

    def __init__(self) -> None:
        self._functions: WeakKeyDictionary[Any, tuple[_Call, dict[BlockKey, Forward]]] = WeakKeyDictionary()

    @contextmanager
    def in_place(
        self, network: Any, blocks: Container[BlockKey], reductions: Mapping[BlockKey, Reduction], activity: Activity
    ) -> Iterator[None]:
        """Run the layers of ``blocks`` on the tokens that ``reductions`` leave at the time they run."""
        call, functions = self._functions.setdefault(network, (_Call(), {}))
        call.reductions, call.activity = reductions, activity
        changed: list[tuple[Any, Any]] = []
        try:
            for description, block in transformer_blocks(network):
                key, layer = description.key, block.ff
                if key not in blocks:
                    continue
                previous = layer.__dict__.get("forward")
                if previous is not None:  # somebody else has shadowed it: around theirs, and only this time
                    function = _merged(previous, key, call)
                elif key not in functions:
                    function = functions[key] = _merged(layer.forward, key, call)
                else:
                    function = functions[key]
                changed.append((layer, previous))
                layer.forward = function
            yield
        finally:
            for layer, previous in changed:
                if previous is None:
                    del layer.forward
                else:
                    layer.forward = previous
            call.reductions, call.activity = {}, Activity()  # they hold the tokens of the whole call


def _merged(forward: Forward, key: BlockKey, call: _Call) -> Forward:
    def merged_forward(tokens: torch.Tensor) -> torch.Tensor:
        reduction = call.reductions.get(key)
        if reduction is None or not reduction.shrinks_queries:  # left alone: counted where that was decided
            return forward(tokens)
        call.activity.use(block_name(key), reduction.tokens, reduction.kept)
        return reduction.restore(forward(reduction.reduce(tokens)))

    return merged_forward
