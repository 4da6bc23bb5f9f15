"""Token merging in diffusers' UNets: around the forward of single layers, whatever processor runs inside."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from ..core.not_copied import Args, Function, Kwargs
from ..core.technique import COMPILATION
from ..token_merging.call import ModuleBlock, TokenCall, merged_layer
from ..token_merging.kept import COMPILED, GRADIENTS, SHARED_CODE, UNTOLD, WINDOWS, SamplingStep
from ..token_merging.tome_policy import TokenMergingPolicy, no_unet
from ..token_merging.tome_settings import TokenMergingSettings
from .components import DENOISER
from .host import Host
from .patches import Patches, Wrap, computed_by_others
from .pipeline_technique import PipelineTechnique


def is_unet(model: object) -> bool:
    """Return whether a model is of the UNet class of SD 1.x, SD 2.x and SDXL."""
    from diffusers import UNet2DConditionModel

    return isinstance(model, UNet2DConditionModel)


def image_attention(unet: Module) -> tuple[ModuleBlock, ...]:
    """Return every block of a ``UNet2DConditionModel`` with self-attention over the image alone; names are paths."""
    return tuple(ModuleBlock(name, number, scale, block) for number, (name, scale, block) in enumerate(_walk(unet)))


def _walk(unet: Any) -> Iterator[tuple[str, int, Module]]:
    scale = 1
    for number, block in enumerate(unet.down_blocks):
        yield from _in_block(f"down_blocks.{number}", block, scale)
        scale *= 2 if getattr(block, "downsamplers", None) else 1
    if unet.mid_block is not None:
        yield from _in_block("mid_block", unet.mid_block, scale)
    for number, block in enumerate(unet.up_blocks):
        yield from _in_block(f"up_blocks.{number}", block, scale)
        scale //= 2 if getattr(block, "upsamplers", None) else 1


def _in_block(path: str, block: Module, scale: int) -> Iterator[tuple[str, int, Module]]:
    from diffusers.models.attention import BasicTransformerBlock

    attentions = getattr(block, "attentions", None)
    for name, module in attentions.named_modules() if attentions is not None else ():
        if isinstance(module, BasicTransformerBlock) and not module.only_cross_attention:
            yield f"{path}.attentions.{name}", scale, module


FUSED = "diffusers has fused its projections (fuse_qkv_projections), which read the same tokens"


@dataclass(frozen=True)
class TokenMerging(TokenMergingSettings):
    """Merge similar tokens, or leave out keys and values: the settings of the node Apply ToMe."""


class PipelineTokenMerging(PipelineTechnique):
    """Apply ToMe on one ``UNet2DConditionModel``; on attaching, `UnsupportedModel` for others, or without a block."""

    kind, title = TokenMergingPolicy.kind, TokenMergingPolicy.title
    roles = (DENOISER,)
    policy: TokenMergingPolicy[ModuleBlock]

    def attach(self, host: Host, patches: Patches) -> None:
        self._latent = (0, 0)
        self._call: TokenCall | None = None
        self._wraps: list[tuple[str, Wrap]] = []
        name, settings = host.component.class_name, self.settings
        if not is_unet(host.component.part):
            raise no_unet(name, "ReuseSteps, Attention and Compile")
        policy = self.policy = TokenMergingPolicy(name, image_attention(host.component.part), settings)
        for block in policy.blocks:
            for name, layer in block.layers(settings):
                other = partial(merged_layer, block, call=lambda: self._call)
                make = partial(self._self_attention, block) if name == "attn1" else other
                self._wraps.append((block.name, patches.wrap(layer, "forward", make)))

    def before(self, host: Host, args: Args, kwargs: Kwargs) -> None:
        policy, refusal = self.policy, _refusal(host)
        host.run.over, self._call = policy.kept.drop_all, None
        if not policy.settings.does_something:
            return
        for name, wrap in self._wraps:
            reason = computed_by_others(wrap.owner)
            wrap.switch(not reason)
            if reason:
                self.activity.skip(name, reason)
        assert host.call is not None, "a UNet is called with a latent"
        sample = host.call.sample
        self._latent = (sample.shape[-2], sample.shape[-1])
        host.run.moved_to(host.pipeline, host.call.timestep)
        step: int | Tensor = 0
        if policy.draws:
            # A tensor, so that compiled code serves all steps. It is written there, not copied, and not read back.
            step = torch.full((), host.run.index(), dtype=torch.int64, device=sample.device)
        shapes = tuple(value.shape for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
        passes = (host.run.calls, shapes, frozenset(name for name, value in kwargs.items() if value is not None))
        evaluation = None if refusal or not policy.settings.keeps else _evaluation(host)
        beside = [one.policy for one in host.techniques]
        self._call = policy.call(TokenCall, self.activity, step, evaluation, passes, refusal, host.again, beside)

    def end_call(self) -> None:
        super().end_call()
        if self._call is not None:
            self._call.settle()

    def _self_attention(self, block: ModuleBlock, forward: Function) -> Function:
        """Return ``forward`` of a self-attention with fewer keys, or fewer tokens altogether."""
        layer: Any = block.module.attn1

        @functools.wraps(forward)
        def reduced(
            hidden_states: Tensor,
            encoder_hidden_states: Tensor | None = None,
            attention_mask: Tensor | None = None,
            **options: object,
        ) -> object:
            def attend(tokens: Tensor, keys: Tensor | None) -> object:
                return forward(tokens, encoder_hidden_states=keys, attention_mask=attention_mask, **options)

            if self._call is None or encoder_hidden_states is not None:
                return attend(hidden_states, encoder_hidden_states)
            if not self.settings.merges and getattr(layer, "fused_projections", False):
                self.activity.fall_back(FUSED)
                return attend(hidden_states, None)
            size, masked = block.size(self._latent), attention_mask is not None
            return self._call.around_attention(block, hidden_states, size, masked, attend)

        return reduced


def _evaluation(host: Host) -> SamplingStep | None:
    """Return the prediction that the host's call belongs to; timesteps stand for noise levels, as they fall with them.

    None if it is not known.
    """
    run, steps = host.run, host.run.schedule()
    if not steps or host.call is None:
        return None
    run.at(host.pipeline, host.call)
    if run.elsewhere:
        return None
    levels = [*sorted(set(steps[run.first : run.last + 1]), reverse=True), 0.0]
    sigma = steps[min(run.number, len(steps) - 1)]
    return SamplingStep(levels, run.number, sigma, run.taking_part, last=run.number >= run.last)


def _refusal(host: Host) -> str:
    """Return why a difference cannot be kept for calls of a denoiser; "" if it can."""
    technique: Any = host.find(COMPILATION)
    if getattr(host.pipeline, "scheduler", None) is None:
        return UNTOLD
    if getattr(host.component.part, "_compiled_call_impl", None) is not None:
        return COMPILED
    if hasattr(host.pipeline, "get_views"):  # of Panorama and DemoFusion, which moves them from step to step
        return WINDOWS
    if torch.is_grad_enabled():
        return GRADIENTS
    return SHARED_CODE if technique is not None and technique.settings.regional else ""
