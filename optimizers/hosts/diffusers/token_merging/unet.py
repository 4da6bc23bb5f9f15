"""Token merging in diffusers' UNets: around the forward of single layers, whatever processor runs inside."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from .....core.calls import Args, Kwargs
from .....core.errors import UnsupportedModel
from ....token_merging.policy import counted
from ....token_merging.unet_policy import CallState, UNetMergingPolicy, restored_output
from ..host import Host
from ..network_calls import tensor_given
from ..patches import Patches, current
from ..unet import ModuleBlock, image_attention
from .denoiser import Forward, PipelineTokenMerging

_MASK = "an attention mask over the image was given, and merged tokens have no place in it"


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
                patches.shadow(block.module, "forward", self._fewer_keys(block, current(block.module, "forward")))
                continue
            attention = block.module.attn1
            patches.shadow(attention, "forward", self._self_attention(block, current(attention, "forward")))
            if settings.merge_crossattn and block.module.attn2 is not None:
                attention = block.module.attn2
                patches.shadow(attention, "forward", self._queries_merged(block, current(attention, "forward")))
            if settings.merge_mlp:
                layer = block.module.ff
                patches.shadow(layer, "forward", self._queries_merged(block, current(layer, "forward")))

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
        policy = self.policy

        @functools.wraps(forward)
        def reduced(
            hidden_states: Tensor,
            encoder_hidden_states: Tensor | None = None,
            attention_mask: Tensor | None = None,
            **options: object,
        ) -> object:
            if not self.active or encoder_hidden_states is not None:
                given = {"encoder_hidden_states": encoder_hidden_states, "attention_mask": attention_mask}
                return forward(hidden_states, **given, **options)
            size = block.size(self._latent)
            reduction = policy.reduction(block, hidden_states, size, self._state)
            if reduction is not None and attention_mask is not None:
                self.activity.fall_back(_MASK)
                reduction = None
            if reduction is not None and policy.other_layers:  # else nobody asks, and it would hold memory
                self._state.reductions[block.number] = reduction
            if reduction is None or not policy.settings.merge_attn:
                return forward(hidden_states, attention_mask=attention_mask, **options)
            self.activity.use(block.name, reduction.tokens, reduction.kept)

            def fewer() -> object:
                keys = reduction.reduce(hidden_states)
                if not reduction.shrinks_queries:
                    return forward(hidden_states, encoder_hidden_states=keys, **options)
                return restored_output(reduction, forward(keys, **options), self.activity)

            return self._state.attend(block.name, hidden_states, lambda: forward(hidden_states, **options), fewer)

        return reduced

    def _queries_merged(self, block: ModuleBlock, forward: Forward) -> Forward:
        """Return ``forward`` of a layer whose first argument is the image, with the block's merging around it."""

        @functools.wraps(forward)
        def merged(hidden_states: Tensor, *args: object, **options: object) -> object:
            reduction = self._state.reductions.get(block.number) if self.active else None
            if reduction is None or not reduction.shrinks_queries:
                return forward(hidden_states, *args, **options)
            self.activity.use(block.name, reduction.tokens, reduction.kept)
            return restored_output(reduction, forward(reduction.reduce(hidden_states), *args, **options), self.activity)

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
