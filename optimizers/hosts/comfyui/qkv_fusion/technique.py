"""Fuse QKV on a MODEL."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from .....core.activity import Activity, Summary
from .....core.errors import UnsupportedModel
from .....core.order import QKV_FUSION
from ....families import names
from ..model import describe_model, require_model
from ..stack import ModelCall, Technique
from .network import ALL, KEYS_AND_VALUES, NetworkFusion, fusion_of


class FuseQKV(Technique[ModelCall]):
    """Compute query, key and value of each attention layer in one matrix multiplication, on one MODEL.

    Args:
        patcher: the MODEL, read for its structure only.
        node_id: the node to report to.

    Raises:
        UnsupportedModel: if no attention layer of this model has projections that can be computed together.
    """

    kind = QKV_FUSION
    title = "Fuse QKV"

    def __init__(self, patcher: Any, node_id: str | None = None) -> None:
        super().__init__(node_id)
        require_model(patcher)
        network = patcher.model.diffusion_model
        self.sizes = fusion_of(network).sizes
        self.streamed = bool(getattr(patcher, "is_dynamic", bool)())
        self._used: weakref.WeakSet[NetworkFusion] = weakref.WeakSet()
        if self.sizes == (0, 0):
            layer = _fused_by_design(network)
            why = f"computes them together already (layer {layer})" if layer else "is not among the models it knows"
            raise UnsupportedModel(
                f"Fuse QKV cannot fuse the query, key and value projections of {describe_model(patcher)}, which {why}.",
                f"Remove the node for this model. It serves {names(lambda family: family.attention)}.",
            )

    def describe(self) -> str:
        """Return how many layers it reaches, and what it costs."""
        parts = [f"{what} of {count} attention layers" for what, count in zip((ALL, KEYS_AND_VALUES), self.sizes,
                 strict=True) if count]  # fmt: skip
        text = f"{', '.join(parts)}; weights are shared, not copied"
        if self.streamed:
            text += "; steps aside while dynamic VRAM streams the weights"
        return text

    def run_changed(self) -> None:
        """Let go of the weights between runs, so that unloading the model frees its memory."""
        for fusion in self._used:
            fusion.forget()

    def install(self, call: ModelCall, activity: Activity) -> None:
        """Let the projections compute together in this call."""
        fusion = fusion_of(call.model.diffusion_model)
        self._used.add(fusion)
        call.cleanup.enter_context(fusion.installed(torch.device(call.sigmas.device), activity))

    def summarize(self, activity: Activity) -> Summary:
        """Return e.g. ``q, k and v in 320 attention calls, k and v in 320; 0 fallbacks``."""
        details, count = activity.fallback_lines(), activity.fallback_count
        if not activity.used:
            why = "every layer was left alone" if count else "no attention layer was called"
            return Summary("inactive", f"not active: {why}", details=details)
        parts = [f"{what} in {activity.used[what]}" for what in (ALL, KEYS_AND_VALUES) if what in activity.used]
        text = f"one multiplication for {' and for '.join(parts)} attention calls; {count} fallbacks"
        return Summary("partly" if count else "active", text, details=details)


def _fused_by_design(network: Any) -> str | None:
    """Return the name of a layer that computes query, key and value together already, or None (Flux, SD3, ...)."""
    return next((name for name, _ in network.named_modules() if name.rpartition(".")[2] in ("qkv", "to_qkv")), None)
