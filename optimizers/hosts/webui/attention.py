"""Set Attention Processor on a UNet: its layers' projections stay, and the backend computes what is between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ....core.calls import Function
from ....core.errors import UnsupportedModel
from ....core.shadow import Shadows
from ...attention.policy import AttentionPolicy
from .places import Place
from .technique import WebUITechnique
from .unet import is_unet, transformer_blocks

_OTHER_INPUTS = "the host or another extension gives this layer more than tokens and a mask"


class UNetAttention(WebUITechnique):
    """Attention of one UNet with a backend; `UnsupportedModel` if it has no attention that could be reached.

    `BackendUnavailable` if the backend cannot run on the device.
    """

    policy: AttentionPolicy

    def __init__(self, backend: str, place: Place, device: torch.device) -> None:
        network, name = place.network, type(place.network).__name__
        blocks = transformer_blocks(network) if is_unet(network) else ()
        layers = [
            (f"{part} {row}.{number} {attribute}", layer)
            for part, row, number, _, block in blocks
            for attribute in ("attn1", "attn2")
            if (layer := getattr(block, attribute, None)) is not None and _head_size(layer)
        ]
        if not layers:
            problem = f"{name} has no attention layers of a UNet."
            raise UnsupportedModel(problem, "Leave Set Attention Processor out for this model.")
        timings = Path.home() / ".cache" / "paceline" / "attention_timings.json"
        sizes = sorted({_head_size(layer) for _, layer in layers})
        super().__init__(AttentionPolicy(backend, device, place.dtype, sizes, timings))
        self._layers = layers

    def attach(self, shadows: Shadows) -> None:
        for name, layer in self._layers:
            shadows.put(layer, "forward", self._routed(name, layer, layer.forward))

    def _routed(self, name: str, layer: Any, forward: Function) -> Function:
        heads = int(layer.heads)

        def split(tokens: Tensor) -> Tensor:
            """[batch, tokens, heads * size] -> [batch, heads, tokens, size]."""
            apart: Tensor = tokens.unflatten(2, (heads, -1))
            return apart.transpose(1, 2)

        def attend(x: Tensor, context: Tensor | None = None, *args: Any, **options: Any) -> object:
            value = options.get("value")
            known = {"value", "mask", "transformer_options"}
            others = [*args, *(given for key, given in options.items() if key not in known)]
            if any(isinstance(other, Tensor) or other for other in others):
                self.activity.fall_back(_OTHER_INPUTS)
                return forward(x, context, *args, **options)
            keys = x if context is None else context
            q, k, v = layer.to_q(x), layer.to_k(keys), layer.to_v(keys if value is None else value)
            mask = options.get("mask")
            refusal = None if mask is None else "an attention mask of the host"
            output = self.policy.attend(self.activity, name, split(q), split(k), split(v), None, None, False, refusal)
            if output is None:
                return forward(x, context, **options)
            return layer.to_out(output.transpose(1, 2).flatten(2))

        return attend


def _head_size(layer: Any) -> int:
    """Return the channels of one head of an attention layer; 0 if it is none that we know."""
    if not all(hasattr(layer, name) for name in ("heads", "to_q", "to_out")):
        return 0
    # Forge's quantised projections do not tell their width, and ldm's layers not their size.
    return int(getattr(layer, "dim_head", 0) or getattr(layer.to_q, "out_features", 0) // layer.heads)
