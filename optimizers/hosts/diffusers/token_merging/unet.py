"""Token merging in diffusers' UNets: around the forward of single layers, whatever processor runs inside."""

from __future__ import annotations

import functools
from functools import partial

import torch
from torch import Tensor

from .....core.calls import Args, Kwargs
from .....core.errors import UnsupportedModel
from ....token_merging.policy import counted
from ....token_merging.unet_policy import CallState, UNetMergingPolicy
from ..host import Host
from ..network_calls import tensor_given
from ..patches import Patches
from ..unet import ModuleBlock, image_attention
from .denoiser import Forward, PipelineTokenMerging


class PipelineUNetTokenMerging(PipelineTokenMerging):
    """Apply ToMe on one ``UNet2DConditionModel``; on attaching, `UnsupportedModel` if it would reach no block."""

    policy: UNetMergingPolicy[ModuleBlock]
    _latent = (0, 0)

    def attach(self, host: Host, patches: Patches) -> None:
        name, settings = host.component.class_name, self.settings
        policy = self.policy = UNetMergingPolicy(name, image_attention(host.component.part), settings)
        needs_queries = policy.other_layers or not policy.method.works_after_rope
        if needs_queries and any(block.joined for block in policy.blocks):
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
        sample = tensor_given(args, kwargs, "sample", 0)
        self._latent = (sample.shape[-2], sample.shape[-1])
        if self.policy.draws:
            # A tensor, so that compiled code serves all steps. It is written there, not copied, and not read back.
            self._state.step = torch.full((), self.position.index(), dtype=torch.int64, device=sample.device)

    def _self_attention(self, block: ModuleBlock, forward: Forward) -> Forward:
        """Return ``forward`` of a self-attention with fewer keys, or fewer tokens altogether."""
        inside = self._fewer_keys(block, forward)
        only_keys = self.policy.method.works_after_rope and not self.policy.other_layers

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

    def _queries_merged(self, block: ModuleBlock, forward: Forward) -> Forward:
        """Return ``forward`` of a layer whose first argument is the image, with the block's merging around it."""

        @functools.wraps(forward)
        def merged(hidden_states: Tensor, *args: object, **options: object) -> object:
            return self._state.around_layer(block, hidden_states, lambda tokens: forward(tokens, *args, **options))

        return merged

    def _fewer_keys(self, block: ModuleBlock, forward: Forward) -> Forward:
        """Return ``forward`` of an attention with text among its keys; the image's keys come behind the text's."""

        def kept_of(q: Tensor, k: Tensor) -> Tensor | None:
            tokens, text = k.shape[2], k.shape[2] - q.shape[2]
            chosen = self.policy.block_call(block, q, q.shape[2], block.size(self._latent), self._state)
            if chosen is None or text < 0:
                return None
            method, call = chosen
            image = method.kept_tokens(call.height, call.width, call.ratio, k.device) + text
            kept = torch.cat([torch.arange(text, device=k.device), image])
            return counted(block.name, tokens, kept, self.activity)

        return self.with_fewer_keys(block.name, forward, kept_of)
