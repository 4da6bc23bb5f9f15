"""The feed-forward layers of ComfyUI's UNets on fewer tokens."""

from __future__ import annotations

from collections.abc import Callable, Container

from torch import Tensor
from torch.nn import Module

from .....core.shadow import Shadows
from ....token_merging.blocks import CallState
from ..structure.unet import AttentionBlock, BlockKey, described_blocks

Forward = Callable[[Tensor], Tensor]


class FeedForwards:
    """Runs the feed-forward layers of one network on the tokens that are left; ComfyUI has no patch point there.

    The functions that take the layers' place are made once and read what changes from call to call: compiled graphs
    are guarded on the functions, and a new one would be a new graph.
    """

    def __init__(self) -> None:
        self._state = CallState()
        self._functions: dict[BlockKey, Forward] = {}

    def put(self, network: Module, blocks: Container[BlockKey], state: CallState, shadows: Shadows) -> None:
        """Run the layers of ``blocks`` on the tokens that ``state.reductions`` leave, until ``shadows`` are undone."""
        self._state = state
        shadows.on_undo(self._forget)
        for block, module in described_blocks(network):
            if block.key not in blocks:
                continue
            layer = module.ff
            if "forward" in layer.__dict__:  # somebody else has shadowed it: around theirs, and only this time
                shadows.put(layer, "forward", self._merged(layer.forward, block))
                continue
            if block.key not in self._functions:
                self._functions[block.key] = self._merged(layer.forward, block)
            shadows.put(layer, "forward", self._functions[block.key])

    def _forget(self) -> None:
        self._state = CallState()  # the old one holds the tokens of the whole call

    def _merged(self, forward: Forward, block: AttentionBlock) -> Forward:
        def merged_forward(tokens: Tensor) -> Tensor:
            merged: Tensor = self._state.around_layer(block, tokens, forward)
            return merged

        return merged_forward
