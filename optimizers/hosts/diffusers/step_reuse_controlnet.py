"""Reuse Steps on a ControlNet: in a step that the denoiser leaves out it is left out too.

A pipeline calls it before the denoiser, which therefore is asked to decide now. Nobody looks at what it gives then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ....core.activity import Activity, Summary
from ....core.errors import UnsupportedModel
from ...step_reuse.policy import StepReusePolicy
from ...step_reuse.run import Decision
from .components import CONTROLNET, Component
from .host import PipelineTechnique, host_of
from .passes import Call, text_of
from .step_reuse import StepReuse

if TYPE_CHECKING:
    from ....core.calls import Args, Function, Kwargs
    from .host import Host
    from .patches import Patches
    from .settings import ReuseSteps


class ControlNetReuse(StepReusePolicy, PipelineTechnique):
    """Leaves out calls of one ControlNet.

    Args:
        settings: what was asked for.
    """

    roles = (CONTROLNET,)

    def __init__(self, settings: ReuseSteps) -> None:
        PipelineTechnique.__init__(self, settings)
        StepReusePolicy.__init__(self, settings)
        self._shapes: dict[torch.Size, Any] = {}
        self._left_out = 0

    def attach(self, host: Host, patches: Patches) -> None:
        """Check that there is a pipeline.

        Raises:
            UnsupportedModel: for a ControlNet on its own.
        """
        if _denoiser(host.pipeline) is None:
            raise UnsupportedModel(
                "Reuse Steps on a ControlNet follows the pipeline's UNet or transformer, and there is none.",
                "Give the whole pipeline to optimize.",
            )
        patches.on_undo(self._shapes.clear)

    def clauses(self) -> tuple[str, ...]:
        """Return what is done."""
        return ("is left out in steps that are forecast",)

    def summarize(self, activity: Activity) -> Summary:
        """Return how often it was left out."""
        calls, left_out = activity.model_calls, self._left_out
        state = "active" if left_out else "inactive"
        counts = {"calls": calls + left_out, "left_out": left_out}
        return Summary(state, f"{left_out} of {calls + left_out} calls left out", counts)

    def call(self, host: Host, compute: Function, args: Args, kwargs: Kwargs) -> object:
        """Compute one call, or give zeros in the form of the last result."""
        call, decision = Call.of(args, kwargs), None
        leader_host = host_of(_denoiser(host.pipeline))
        leader = None if leader_host is None else leader_host.find(self.kind)
        if call is not None and isinstance(leader, StepReuse):
            scale = kwargs.get("conditioning_scale")
            fixed = (call.sample.shape, tuple(scale) if isinstance(scale, list) else scale)
            run = leader.open(host, call.timestep, fixed, text_of(args, kwargs))
            decision = None if run is None else run.decision
        if call is not None and decision is Decision.FORECAST and call.sample.shape in self._shapes:
            assert isinstance(leader, StepReuse), "nobody else decides"
            self._left_out += 1
            leader.given()
            return _zeros(self._shapes[call.sample.shape], call.sample.device)
        result = compute(*args, **kwargs)
        if call is not None and decision is not None:
            self._shapes[call.sample.shape] = _shape_of(result)
        return result


def step_reuse_for(settings: ReuseSteps, component: Component) -> PipelineTechnique:
    """Return Reuse Steps for a denoiser or a ControlNet."""
    return (ControlNetReuse if component.role == CONTROLNET else StepReuse)(settings)


def _denoiser(pipeline: Any) -> Any:
    return getattr(pipeline, "unet", None) or getattr(pipeline, "transformer", None)


def _shape_of(value: Any) -> Any:
    """Return a result without its numbers."""
    return _mapped(value, lambda tensor: torch.empty_like(tensor, device="meta"))


def _zeros(value: Any, device: torch.device) -> Any:
    return _mapped(value, lambda tensor: torch.zeros_like(tensor, device=device))


def _mapped(value: Any, change: Any) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return type(value)(**{name: _mapped(item, change) for name, item in value.items()})
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(item, change) for item in value)
    return value
