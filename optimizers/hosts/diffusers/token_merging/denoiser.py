"""What both ways of merging tokens share in this host: when a call is reduced, and how to leave keys out of one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .....core.calls import Args, Function, Kwargs
from ....token_merging import TokenMergingSettings
from ....token_merging.joint_policy import without
from ....token_merging.policy import TokenMergingPolicy
from ....token_merging.residual import ResidualCall, where_kept
from ..components import DENOISER
from ..host import Host, PipelineTechnique
from ..intercept import intercepted
from ..position import PipelinePosition
from .evaluations import PipelineEvaluations, refusal

NO_SDPA = "the attention processor does not use scaled_dot_product_attention, so its keys cannot be reached"

Forward = Function
"""The ``forward`` of a layer."""


class PipelineTokenMerging(PipelineTechnique):
    """Apply ToMe on one denoiser; ``active`` and ``residual`` are of the call that runs."""

    kind, title = TokenMergingPolicy.kind, TokenMergingPolicy.title
    roles = (DENOISER,)
    policy: TokenMergingPolicy

    def __init__(self, settings: TokenMergingSettings) -> None:
        super().__init__(settings)
        self.active = False
        self.residual: ResidualCall | None = None
        self.position = PipelinePosition()

    def began(self) -> None:
        super().began()
        self._evaluations = PipelineEvaluations(self.policy.residuals.drop)

    def before(self, host: Host, args: Args, kwargs: Kwargs) -> None:
        timestep = kwargs.get("timestep", args[1] if len(args) > 1 else None)
        self.position.moved_to(host.pipeline, timestep)
        self.active = self.policy.is_active(self.position, self.activity)
        self.residual = self._residual_call(host, args, kwargs) if self.policy.keeps else None

    def end_call(self) -> None:
        super().end_call()
        self.policy.residuals.settle()

    def _residual_call(self, host: Host, args: Args, kwargs: Kwargs) -> ResidualCall | None:
        reason = refusal(host, self.policy)
        unknown: tuple[None, tuple[object, ...]] = (None, ())
        evaluation, passes = unknown if reason else self._evaluations.call(host, self.position, args, kwargs)
        if not self.active:
            return None
        return self.policy.residual_call(evaluation, passes, self.position, reason, host.again)

    def with_fewer_keys(
        self, name: str, forward: Forward, kept_of: Callable[[Tensor, Tensor], Tensor | None]
    ) -> Forward:
        """Return ``forward`` of the attention layer ``name``, which calls torch's SDPA, with keys and values left out.

        ``kept_of`` queries and keys ``[batch, heads, tokens, channels]`` is which keys stay; None for all.
        """
        sdpa = torch.nn.functional.scaled_dot_product_attention

        def attend(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
            kept = kept_of(q, k)
            if kept is None:
                return sdpa(q, k, v, **options)

            def reduced() -> Tensor:
                keys, values, mask = without(kept, k, v, options.get("attn_mask"), 2)
                return sdpa(q, keys, values, **{**options, "attn_mask": mask})

            residual = where_kept(self.residual, name, k.shape[2], k.device)
            return reduced() if residual is None else residual.attend(name, lambda: sdpa(q, k, v, **options), reduced)

        reduced = intercepted(forward, attend, lambda: self.activity.fall_back(NO_SDPA))

        @functools.wraps(forward)
        def fewer(*args: object, **options: object) -> object:
            return (reduced if self.active else forward)(*args, **options)

        return fewer
