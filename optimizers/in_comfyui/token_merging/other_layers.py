"""Cross-attention and feed-forward layers of ComfyUI's UNets on the tokens that self-attention had."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import Module

from ...core.not_copied import Function
from ...core.shadow import Shadows
from ...token_merging.call import TokenCall
from ..structure.unet_blocks import AttentionBlock


class MergedLayers:
    """Runs layers of one network on fewer tokens: ComfyUI has no patch point around feed-forward layers.

    The functions that take the layers' place are made once and read what changes from call to call: compiled graphs
    are guarded on the functions, and a new one would be a new graph.
    """

    def __init__(self) -> None:
        self._call: TokenCall | None = None
        self._functions: dict[Module, tuple[Function, Function]] = {}

    def put(self, layers: list[tuple[AttentionBlock, Module]], call: TokenCall, shadows: Shadows) -> None:
        """Run ``layers`` on the tokens that are left in ``call``, until ``shadows`` are undone."""
        self._call = call
        shadows.on_undo(self._forget)
        for block, layer in layers:
            inner, function = self._functions.get(layer, (None, None))
            if function is None or inner != layer.forward:  # somebody else may shadow it in each call
                function = self._merged(layer.forward, block)
                self._functions[layer] = (layer.forward, function)
            shadows.put(layer, "forward", function)

    def _forget(self) -> None:
        self._call = None  # it holds the tokens of the whole call

    def _merged(self, forward: Function, block: AttentionBlock) -> Function:
        def merged_forward(x: Tensor, *args: object, **options: object) -> Any:
            if self._call is None:
                return forward(x, *args, **options)
            return self._call.around_layer(block, x, lambda tokens: forward(tokens, *args, **options))

        return merged_forward
