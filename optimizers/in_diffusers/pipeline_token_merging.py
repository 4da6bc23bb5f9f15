"""Token merging in diffusers' UNets: around the forward of single layers, whatever processor runs inside."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from ..core.errors import UnsupportedModel
from ..core.not_copied import Args, Function, Kwargs
from ..core.technique import COMPILATION
from ..models.families import Block
from ..token_merging.call import MASKED, OTHER_TOKENS, TokenCall
from ..token_merging.kept import COMPILED, GRADIENTS, UNTOLD, WINDOWS, SamplingStep
from ..token_merging.tome_policy import TokenMergingPolicy, no_unet
from ..token_merging.tome_settings import TokenMergingSettings
from .components import DENOISER
from .host import Host
from .intercept import intercepted
from .patches import Patches, Wrap, computed_by_others
from .pipeline_technique import PipelineTechnique


@dataclass(frozen=True)
class ModuleBlock(Block):
    """One place with self-attention over the image; its name is a path, e.g. ``down_blocks.1.attentions.0``.

    ``module``: a ``BasicTransformerBlock``; or, if ``joined`` (text among the keys, DeepFloyd IF), the attention
    itself.
    """

    module: Module
    joined: bool


def is_unet(model: object) -> bool:
    """Return whether a model is of the UNet class of SD 1.x, SD 2.x, SDXL and DeepFloyd IF."""
    from diffusers import UNet2DConditionModel

    return isinstance(model, UNet2DConditionModel)


def image_attention(unet: Module) -> tuple[ModuleBlock, ...]:
    """Return every block of a ``UNet2DConditionModel`` whose self-attention is over the image alone or with text."""
    return tuple(
        ModuleBlock(name, number, scale, module, joined)
        for number, (name, scale, module, joined) in enumerate(_walk(unet))
    )


def _walk(unet: Any) -> Iterator[tuple[str, int, Module, bool]]:
    scale = 1
    for number, block in enumerate(unet.down_blocks):
        yield from _in_block(f"down_blocks.{number}", block, scale)
        scale *= 2 if getattr(block, "downsamplers", None) else 1
    if unet.mid_block is not None:
        yield from _in_block("mid_block", unet.mid_block, scale)
    for number, block in enumerate(unet.up_blocks):
        yield from _in_block(f"up_blocks.{number}", block, scale)
        scale //= 2 if getattr(block, "upsamplers", None) else 1


def _in_block(path: str, block: Module, scale: int) -> Iterator[tuple[str, int, Module, bool]]:
    from diffusers.models.attention import BasicTransformerBlock
    from diffusers.models.attention_processor import Attention

    attentions = getattr(block, "attentions", None)
    for name, module in attentions.named_modules() if attentions is not None else ():
        joined = isinstance(module, Attention) and getattr(module, "add_k_proj", None) is not None
        if (joined or isinstance(module, BasicTransformerBlock)) and not module.only_cross_attention:
            yield f"{path}.attentions.{name}", scale, module, joined


NO_SDPA = "the attention processor does not use scaled_dot_product_attention, so its keys cannot be reached"


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
        if settings.merges and any(block.joined for block in policy.blocks):
            raise UnsupportedModel(
                f"method is {settings.method}, but the self-attention of {name} has text among its keys and its "
                "residual inside, so queries cannot be merged around it.",
                "Set method to auto or kv_downsample, with merge_crossattn and merge_mlp off.",
            )
        for block in policy.blocks:
            made: list[tuple[Any, Callable[[ModuleBlock, Function], Function]]] = [(block.module, self._fewer_keys)]
            if not block.joined:
                made = [(block.module.attn1, self._self_attention)]
                made += [(block.module.attn2, self._queries_merged)] if settings.merge_crossattn else []
                made += [(block.module.ff, self._queries_merged)] if settings.merge_mlp else []
            for layer, make in made:
                if layer is not None:
                    self._wraps.append((block.name, patches.wrap(layer, "forward", partial(make, block))))

    def before(self, host: Host, args: Args, kwargs: Kwargs) -> None:
        position, policy, refusal = host.run.position, self.policy, _refusal(host, self.policy)
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
        position.moved_to(host.pipeline, host.call.timestep)
        step: int | Tensor = 0
        if policy.draws:
            # A tensor, so that compiled code serves all steps. It is written there, not copied, and not read back.
            step = torch.full((), position.index(), dtype=torch.int64, device=sample.device)
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
        inside = self._fewer_keys(block, forward)

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
            if not self.settings.merges and getattr(block.module.attn1, "fused_projections", False):
                # diffusers computes query, key and value from the same tokens then.
                return inside(hidden_states, attention_mask=attention_mask, **options)
            size, masked = block.size(self._latent), attention_mask is not None
            return self._call.around_attention(block, hidden_states, size, masked, attend)

        return reduced

    def _queries_merged(self, block: ModuleBlock, forward: Function) -> Function:
        """Return ``forward`` of a layer whose first argument is the image, with the block's merging around it."""

        @functools.wraps(forward)
        def merged(hidden_states: Tensor, *args: object, **options: object) -> object:
            if self._call is None:
                return forward(hidden_states, *args, **options)
            return self._call.around_layer(block, hidden_states, lambda tokens: forward(tokens, *args, **options))

        return merged

    def _fewer_keys(self, block: ModuleBlock, forward: Function) -> Function:
        """Return ``forward`` of an attention with fewer keys; the image's come behind a text's."""
        sdpa = torch.nn.functional.scaled_dot_product_attention

        def attend(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **options: Any) -> Tensor:
            """Compute with ``[batch, heads, tokens, channels]``."""

            def whole() -> Tensor:
                return sdpa(q, k, v, attn_mask=attn_mask, **options)

            text, call = k.shape[2] - q.shape[2], self._call
            assert call is not None, "only then attention is intercepted"
            if attn_mask is not None or text < 0:
                self.activity.fall_back(MASKED if text >= 0 else OTHER_TOKENS)
                return whole()
            reduction = call.reduction(block, q[:, 0], block.size(self._latent))
            if reduction is None:
                return whole()

            def fewer(x: Tensor) -> Tensor:
                image = reduction.reduce(x[:, :, text:].flatten(0, 1)).unflatten(0, x.shape[:2])
                return torch.cat([x[:, :, :text], image], dim=2)

            def reduced() -> Tensor:
                output = sdpa(q, fewer(k), fewer(v), **options)
                self.activity.use(block.name, k.shape[2], text + reduction.kept)
                return output

            output: Tensor = call.attend(block, whole, reduced)
            return output

        layer: Any = block.module if block.joined else block.module.attn1
        with_fewer = intercepted(layer, forward, attend, lambda: self.activity.fall_back(NO_SDPA))

        @functools.wraps(forward)
        def run(*args: object, **options: object) -> object:
            return (forward if self._call is None else with_fewer)(*args, **options)

        return run


def _evaluation(host: Host) -> SamplingStep | None:
    """Return the prediction that the host's call belongs to; timesteps stand for noise levels, as they fall with them.

    None if it is not known.
    """
    run, steps = host.run, host.run.position.schedule()
    if not steps or host.call is None:
        return None
    run.at(host.pipeline, host.call)
    if run.elsewhere:
        return None
    levels = [*sorted(set(steps[run.first : run.last + 1]), reverse=True), 0.0]
    sigma = steps[min(run.number, len(steps) - 1)]
    return SamplingStep(levels, run.number, sigma, run.taking_part, last=run.number >= run.last)


def _refusal(host: Host, policy: TokenMergingPolicy[ModuleBlock]) -> str:
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
    if technique is None:
        return ""
    return policy.refused_by("repeated_blocks" if technique.settings.regional else "whole_model")
