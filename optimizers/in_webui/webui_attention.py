"""Set Attention Processor on a UNet: its layers project as before, and the backend computes attention in between."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..attention.attention_policy import AttentionPolicy
from ..attention.backend import Inputs
from ..core.errors import UnsupportedModel
from ..core.not_copied import Function
from ..core.shadow import Shadows
from ..models.families import transformer_blocks
from .webui_models import computed_by_others, is_unet
from .webui_technique import WebUISampling, WebUITechnique

_OTHER_INPUTS = "the host or another extension gives this layer more than tokens and a mask"
_MASK = "an attention mask of the host"


class WebUIAttention(WebUITechnique):
    """Attention of one UNet with a backend; `UnsupportedModel` if the UNet has no attention layer that is known.

    `BackendUnavailable` if the backend cannot run on the device.
    """

    policy: AttentionPolicy

    def __init__(self, backend: str, sampling: WebUISampling) -> None:
        network, name = sampling.model.network, type(sampling.model.network).__name__
        blocks = transformer_blocks(network) if is_unet(network) else ()
        layers = [
            (f"{part} {row}.{number} {attribute}", layer)
            for part, row, number, _, _, block in blocks
            for attribute in ("attn1", "attn2")
            if (layer := getattr(block, attribute, None)) is not None and _head_size(layer)
        ]
        if not layers:
            problem = f"{name} has no attention layers of a UNet."
            raise UnsupportedModel(problem, "Leave Set Attention Processor out for this model.")
        sizes = sorted({_head_size(layer) for _, layer in layers})
        super().__init__(AttentionPolicy(backend, sampling.device, sampling.model.dtype, sizes))
        self._layers, self._dtype = layers, sampling.model.dtype
        self._left: list[str] = []

    def attach(self, shadows: Shadows) -> None:
        for name, layer in self._layers:
            if reason := computed_by_others(layer):
                self._left.append(reason)
            else:
                shadows.put(layer, "forward", self._routed(name, layer, layer.forward))

    def before(self, x: Tensor) -> None:
        super().before(x)
        for reason in self._left:
            self.activity.fall_back(reason)

    def _routed(self, name: str, layer: Any, forward: Function) -> Function:
        heads, size = int(layer.heads), _head_size(layer)

        def refusal(x: Tensor, keys: Tensor) -> str | None:
            """Return why the backend cannot take a call, before anything is projected for it: by its shapes alone."""
            like = x.new_empty((), dtype=self._dtype)
            q, k = (like.expand(len(tokens), heads, tokens.shape[1], size) for tokens in (x, keys))
            return self.policy.refusal(Inputs(q, k, k))

        def split(tokens: Tensor) -> Tensor:
            """[batch, tokens, heads * size] -> [batch, heads, tokens, size]."""
            apart: Tensor = tokens.unflatten(2, (heads, -1))
            return apart.transpose(1, 2)

        def attend(x: Tensor, context: Tensor | None = None, *args: Any, **options: Any) -> object:
            value = options.get("value")
            known = {"value", "mask", "transformer_options"}
            others = [*args, *(given for key, given in options.items() if key not in known)]
            keys = x if context is None else context
            if any(isinstance(other, Tensor) or other for other in others):
                reason: str | None = _OTHER_INPUTS
            else:
                reason = refusal(x, keys) if options.get("mask") is None else _MASK
            if reason is not None:
                self.activity.fall_back(reason)
                return forward(x, context, *args, **options)
            q, k, v = layer.to_q(x), layer.to_k(keys), layer.to_v(keys if value is None else value)
            output = self.policy.attend(self.activity, name, Inputs(split(q), split(k), split(v)))
            if output is None:  # the kernel failed: from now on its calls are refused
                return forward(x, context, **options)
            return layer.to_out(output.transpose(1, 2).flatten(2))

        return attend


def _head_size(layer: Any) -> int:
    """Return the channels of one head of an attention layer; 0 for a layer of another kind."""
    if not all(hasattr(layer, name) for name in ("heads", "to_q", "to_out")):
        return 0
    # Forge's quantised projections do not tell their width, and ldm's layers not their size.
    return int(getattr(layer, "dim_head", 0) or getattr(layer.to_q, "out_features", 0) // layer.heads)
