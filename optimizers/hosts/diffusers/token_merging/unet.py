"""Token merging in diffusers' UNets: around the forward of single layers, whatever processor runs inside."""

from __future__ import annotations

import functools
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .....core.calls import Args, Function, Kwargs
from .....core.errors import UnsupportedModel
from ....token_merging.blocks import CallState
from ....token_merging.policy import MASKED, OTHER_TOKENS, TokenMergingPolicy, no_unet
from ..host import Host
from ..intercept import intercepted
from ..patches import Patches
from .blocks import ModuleBlock, image_attention, is_unet
from .denoiser import PipelineTokenMerging

NO_SDPA = "the attention processor does not use scaled_dot_product_attention, so its keys cannot be reached"


class PipelineUNetTokenMerging(PipelineTokenMerging):
    """Apply ToMe on one ``UNet2DConditionModel``; on attaching, `UnsupportedModel` for others, or without a block."""

    _latent = (0, 0)

    def attach(self, host: Host, patches: Patches) -> None:
        name, settings = host.component.class_name, self.settings
        if not is_unet(host.component.part):
            raise no_unet(name, "ReuseSteps, Attention and Compile")
        policy = self.policy = TokenMergingPolicy(name, image_attention(host.component.part), settings)
        if policy.shrinks_queries and any(block.joined for block in policy.blocks):
            raise UnsupportedModel(
                f"method is {settings.method}, but the self-attention of {name} has text among its keys and its "
                "residual inside, so queries cannot be merged around it.",
                "Set method to auto or kv_downsample, with merge_crossattn and merge_mlp off.",
            )
        self._state = CallState()
        for block in policy.blocks:
            if block.joined:
                patches.wrap(block.module, "forward", partial(self._fewer_keys, block))
                continue
            patches.wrap(block.module.attn1, "forward", partial(self._self_attention, block))
            if settings.merge_crossattn and block.module.attn2 is not None:
                patches.wrap(block.module.attn2, "forward", partial(self._queries_merged, block))
            if settings.merge_mlp:
                patches.wrap(block.module.ff, "forward", partial(self._queries_merged, block))

    def before(self, host: Host, args: Args, kwargs: Kwargs) -> None:
        super().before(host, args, kwargs)
        # What compiled code reads must be the same at the start of every call, or each would be compiled anew.
        self._state = CallState(self.activity, residual=self.residual)
        if not self.active:
            return
        assert host.call is not None, "a UNet is called with a latent"
        sample = host.call.sample
        self._latent = (sample.shape[-2], sample.shape[-1])
        if self.policy.draws:
            # A tensor, so that compiled code serves all steps. It is written there, not copied, and not read back.
            self._state.step = torch.full((), host.run.position.index(), dtype=torch.int64, device=sample.device)

    def _self_attention(self, block: ModuleBlock, forward: Function) -> Function:
        """Return ``forward`` of a self-attention with fewer keys, or fewer tokens altogether."""
        inside = self._fewer_keys(block, forward)
        only_keys = not self.policy.shrinks_queries

        @functools.wraps(forward)
        def reduced(
            hidden_states: Tensor,
            encoder_hidden_states: Tensor | None = None,
            attention_mask: Tensor | None = None,
            **options: object,
        ) -> object:
            def attend(tokens: Tensor, keys: Tensor | None) -> object:
                return forward(tokens, encoder_hidden_states=keys, attention_mask=attention_mask, **options)

            if not self.active or encoder_hidden_states is not None:
                return attend(hidden_states, encoder_hidden_states)
            if only_keys and getattr(block.module.attn1, "fused_projections", False):
                # diffusers computes query, key and value from the same tokens then.
                return inside(hidden_states, attention_mask=attention_mask, **options)
            size, masked = block.size(self._latent), attention_mask is not None
            return self.policy.around_attention(block, hidden_states, size, self._state, masked, attend)

        return reduced

    def _queries_merged(self, block: ModuleBlock, forward: Function) -> Function:
        """Return ``forward`` of a layer whose first argument is the image, with the block's merging around it."""

        @functools.wraps(forward)
        def merged(hidden_states: Tensor, *args: object, **options: object) -> object:
            return self._state.around_layer(block, hidden_states, lambda tokens: forward(tokens, *args, **options))

        return merged

    def _fewer_keys(self, block: ModuleBlock, forward: Function) -> Function:
        """Return ``forward`` of an attention with fewer keys; the image's come behind a text's."""
        sdpa = torch.nn.functional.scaled_dot_product_attention

        def attend(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **options: Any) -> Tensor:
            """Compute with ``[batch, heads, tokens, channels]``."""

            def whole() -> Tensor:
                return sdpa(q, k, v, attn_mask=attn_mask, **options)

            text = k.shape[2] - q.shape[2]
            if attn_mask is not None or text < 0:
                self.activity.fall_back(MASKED if text >= 0 else OTHER_TOKENS)
                return whole()
            reduction = self.policy.reduction(block, q[:, 0], block.size(self._latent), self._state)
            if reduction is None:
                return whole()

            def fewer(x: Tensor) -> Tensor:
                image = reduction.reduce(x[:, :, text:].flatten(0, 1)).unflatten(0, x.shape[:2])
                return torch.cat([x[:, :, :text], image], dim=2)

            def reduced() -> Tensor:
                output = sdpa(q, fewer(k), fewer(v), **options)
                self.activity.use(block.name, k.shape[2], text + reduction.kept)
                return output

            output: Tensor = self._state.attend(block.name, q[:, 0], whole, reduced)
            return output

        with_fewer = intercepted(forward, attend, lambda: self.activity.fall_back(NO_SDPA))

        @functools.wraps(forward)
        def run(*args: object, **options: object) -> object:
            return (with_fewer if self.active else forward)(*args, **options)

        return run
