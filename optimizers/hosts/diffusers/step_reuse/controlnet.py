"""Reuse Steps on a ControlNet: in a step that the denoiser leaves out it is left out too.

A pipeline calls it before the denoiser, whose rule therefore decides now. Its output is not used then.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from .....core.activity import Activity, Summary
from .....core.calls import Args, Function, Kwargs
from .....core.errors import UnsupportedModel
from .....core.technique import STEP_REUSE, Policy
from ..components import CONTROLNET
from ..host import Host, PipelineTechnique, host_of
from ..patches import Patches
from ..settings import ReuseSteps
from .technique import PipelineStepReuse


class ControlNetReusePolicy(Policy):
    """The report of a ControlNet: how many of its calls were ``left_out``."""

    kind = STEP_REUSE
    title = "Reuse Steps"

    def __init__(self) -> None:
        self.left_out = 0

    def clauses(self) -> tuple[str, ...]:
        return ("is left out in steps that are forecast",)

    def summarize(self, activity: Activity) -> Summary:
        calls, left_out = activity.model_calls, self.left_out
        state = "active" if left_out else "inactive"
        counts = {"calls": calls + left_out, "left_out": left_out}
        return Summary(state, f"{left_out} of {calls + left_out} calls left out", counts)


class ControlNetReuse(PipelineTechnique):
    """Leaves out calls of one ControlNet."""

    kind, title = ControlNetReusePolicy.kind, ControlNetReusePolicy.title
    policy: ControlNetReusePolicy
    roles = (CONTROLNET,)

    def __init__(self, settings: ReuseSteps) -> None:
        super().__init__(settings)
        self._shapes: dict[torch.Size, Any] = {}

    def attach(self, host: Host, patches: Patches) -> None:
        """Raise `UnsupportedModel` for a ControlNet on its own."""
        if _denoiser(host.pipeline) is None:
            raise UnsupportedModel(
                "Reuse Steps on a ControlNet follows the pipeline's UNet or transformer, and there is none.",
                "Give the whole pipeline to optimize.",
            )
        self.policy = ControlNetReusePolicy()
        patches.on_undo(self._shapes.clear)

    def call(self, host: Host, compute: Function, args: Args, kwargs: Kwargs) -> object:
        """Compute one call, or give zeros in the form of the last result."""
        call, run = host.call, None
        leader_host = host_of(_denoiser(host.pipeline))
        leader = None if leader_host is None else leader_host.find(self.kind)
        if call is not None and leader_host is not None and isinstance(leader, PipelineStepReuse):
            leader_host.begin_run()
            run = leader.open(leader_host, call)
        if call is None or run is None:
            return compute(*args, **kwargs)
        if run.rule.skips and call.sample.shape in self._shapes:
            self.policy.left_out += 1
            run.outputs.given = True
            empty, device = self._shapes[call.sample.shape], call.sample.device
            return tree_map_only(Tensor, lambda tensor: torch.zeros_like(tensor, device=device), empty)
        result = compute(*args, **kwargs)
        meta = tree_map_only(Tensor, lambda tensor: torch.empty_like(tensor, device="meta"), result)
        self._shapes[call.sample.shape] = meta
        return result


def _denoiser(pipeline: Any) -> Any:
    return getattr(pipeline, "unet", None) or getattr(pipeline, "transformer", None)
