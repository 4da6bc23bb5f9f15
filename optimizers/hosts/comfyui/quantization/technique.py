"""Quantize int8 on one MODEL."""

from __future__ import annotations

from typing import Any

from .....core.activity import Activity, Summary
from .....core.order import INT8
from ....quantization.kernels import Kernel
from ....quantization.layers import Decisions
from ....quantization.settings import QuantizationSettings
from ..stack import ModelCall
from ..weight_clone import Plan
from ..weight_swap import WeightTechnique
from .linear import existing_weight, is_int8, quantized_linear
from .network import PREFIX
from .text import decision_lines, one_line

_OFFLOADED = "a LoRA on a layer that is not loaded: computed in full precision"


class Int8Quantization(WeightTechnique):
    """Some linear layers in int8, in ComfyUI's own format.

    Args:
        settings: what was asked for.
        decisions: which layers, with their int8 weights; empty if the file was in int8 already.
        kernel: what computes them.
        notes: why other kernels are not used, and where the token counts come from.
        node_id: the node to report to.
    """

    kind = INT8
    title = "Quantize int8"

    def __init__(
        self,
        settings: QuantizationSettings,
        decisions: Decisions,
        kernel: Kernel | None,
        notes: tuple[str, ...] = (),
        node_id: str | None = None,
    ) -> None:
        super().__init__(node_id)
        self.settings, self.decisions, self.kernel, self.notes = settings, decisions, kernel, notes

    def plan(self, plan: Plan) -> None:
        """Tell ComfyUI that this model has quantised layers."""
        plan.config.quant_config = {"mixed_ops": True}

    def replace_module(self, name: str, module: Any, plan: Plan) -> Any | None:
        """Return the int8 layer for a chosen linear layer."""
        if is_int8(module):  # from a file in int8: the same weights, our kernel
            weight, weight_only = existing_weight(module)
        else:
            verdict = self.decisions.quantized.get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
            if verdict is None or verdict.weight is None:
                return None
            weight, weight_only = verdict.weight, self.settings.mode == "weight_only"
        return quantized_linear(module, weight, plan.compute_dtype, self.kernel, weight_only)

    def describe(self) -> str:
        """Return the settings, how many layers are in int8, and the bytes that saves."""
        return one_line(self.settings, self.decisions, self.kernel)

    def details(self) -> tuple[str, ...]:
        """Return a line for each reason to keep layers, and the largest errors."""
        return (*self.notes, *decision_lines(self.decisions))

    def install(self, call: ModelCall, activity: Activity) -> None:
        """Count; the work is in the weights."""
        layers = [module for module in call.model.diffusion_model.modules() if is_int8(module)]
        patched = sum(bool(module.weight_function) for module in layers)
        activity.used["layers"] = activity.used.get("layers", 0) + len(layers) - patched
        if patched:
            activity.fallbacks[_OFFLOADED] = activity.fallbacks.get(_OFFLOADED, 0) + patched

    def summarize(self, activity: Activity) -> Summary:
        """Return e.g. ``active in 96 linear layers over 20 model calls; 0 fallbacks``."""
        details = (*activity.fallback_lines(), *self.details())
        calls = activity.model_calls
        if not activity.use_count:
            why = "all its layers fell back" if activity.fallback_count else "the model has no int8 layers"
            return Summary("inactive", f"not active: {why}", details=details)
        count = round(activity.use_count / max(1, calls))
        text = f"active in {count} linear layers over {calls} model calls; {activity.fallback_count} fallbacks"
        return Summary("partly" if activity.fallback_count else "active", text, details=details)
