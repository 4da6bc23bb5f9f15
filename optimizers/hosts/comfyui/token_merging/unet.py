"""Token merging in ComfyUI's UNets: merge before a layer, run it on fewer tokens, make its output whole again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor
from torch.nn import Module

from .....core.activity import Activity
from .....core.others import computed_by, replacement
from .....core.shadow import Shadows
from .....core.shared import Function, Shared
from .....core.technique import COMPILATION, find
from ....families import find_family
from ....samplers import sampler_of
from ....token_merging.blocks import CallState, restored_output
from ....token_merging.method import Reduction
from ....token_merging.policy import TokenMergingPolicy, no_unet
from ....token_merging.residual import COMPILED, WINDOWS, ResidualCall, where_kept
from ....token_merging.settings import TokenMergingSettings
from ..runtime.attention_chain import Attend, ChainedAttention, add_layer
from ..runtime.run import SamplerCall, SamplingRun, followed_sampler
from ..runtime.technique import ComfyTechnique, ModelCall
from ..structure.model import describe_model, is_compiled_by_others, is_unet, kept_memory, require_model
from ..structure.protocols import ModelPatcher, Options
from ..structure.unet import AttentionBlock, BlockKey, attention_blocks, described_blocks
from .evaluations import Evaluations, SchedulePosition
from .feed_forwards import FeedForwards

STATE = "paceline_token_merging"
_RESTORE = "paceline_restore_tokens"
_LAYERS = ("attn1", "attn2")

_OTHER_KEYS = "another node had added keys or values, so they are no longer one for each place of the picture"
_PLACES = ", and may take its keys for places of the picture"
_PARTS = "another node computes attention in parts or in another layout, so no difference was kept or added"

Patched = tuple[Tensor, Tensor, Tensor]
"""What a patch in front of attention is given and returns: tokens for queries, keys and values."""


@dataclass
class ModelCallState(Shared, CallState):
    """What the patches of a UNet's blocks share in one model call; reaches them through ``extra_options``.

    ``replaced``: why blocks are left alone whose attention another node computes itself, by its name and the block's;
    ``visits``: runs of each block;
    ``next``: what the attention that comes next is to do with a difference; ``restored``: whether it has made its
    output whole again.
    """

    replaced: Mapping[str, Mapping[tuple[Any, ...], str]] = field(default_factory=dict)
    visits: dict[BlockKey, int] = field(default_factory=dict)
    next: _Next | None = None
    restored: bool = False

    def forget_next(self) -> None:
        self.next = None


@dataclass
class _Next:
    """One self-attention: where it is, how it is reduced, and whether its queries, keys and values are so already.

    ``batch``: of its tokens.
    """

    place: str
    reduction: Reduction
    is_reduced: bool
    batch: int

    def is_of(self, q: Tensor) -> bool:
        """Return whether a call with queries ``q`` is this attention, whole, and not a part of it."""
        fewer = self.is_reduced and self.reduction.shrinks_queries
        return q.shape[:-1] == (self.batch, self.reduction.kept if fewer else self.reduction.tokens)


class ComfyTokenMerging(ComfyTechnique[ModelCall]):
    """Apply ToMe on one UNet MODEL, read for its structure only; `UnsupportedModel` if no block would be reached."""

    policy: TokenMergingPolicy[AttentionBlock]

    def __init__(self, patcher: ModelPatcher, settings: TokenMergingSettings) -> None:
        blocks = [block for block in attention_blocks(patcher) if block.self_attention]
        policy = TokenMergingPolicy(describe_model(patcher), blocks, settings)
        super().__init__(policy)
        policy.allocating = kept_memory
        self._by_key = {block.key: block for block in policy.blocks}
        self._feed_forwards: WeakKeyDictionary[Module, FeedForwards] = WeakKeyDictionary()
        # One object for the life of the technique: compiled graphs are guarded on the identity of patches.
        # Each patch costs time in every block: where queries all stay, nothing is to be done behind attention.
        after = self._after_attention if policy.shrinks_queries else None
        self._self_attention_pair = (self._before_self_attention, after)
        self._cross_attention_pair = (self._before_cross_attention, self._after_attention)
        self._layer: Attend = self._attend

    def run_begins(self, run: SamplingRun, call: SamplerCall) -> None:
        run.followed = sampler_of(followed_sampler(call)).once_a_step
        if self.policy.keeps:
            run.kept[self.kind] = Evaluations("context_handler" in call.options)

    def _residual_call(self, call: ModelCall, position: SchedulePosition) -> ResidualCall | None:
        """Return what a model call does with the differences that reducing makes; None for nothing."""
        if not self.policy.keeps:
            return None
        evaluations: Any = call.run.kept.get(self.kind)
        latest, passes, refusal = None, tuple(call.transformer_options.get("uuids", ())), ""
        if evaluations is not None and evaluations.latest is not None and passes:
            latest = evaluations.latest
            # A wrapper of another node may cut the latent into tiles and hand over several at once.
            tiles = call.shapes["x"][0] != evaluations.batch * len(passes)
            refusal = WINDOWS if evaluations.windows or tiles else ""
        refusal, sizes = _compiled(self.policy, call) or refusal, frozenset(call.shapes.items())
        residual = self.policy.residual_call(latest, (passes, sizes), position, refusal, call.again)
        if residual is not None:
            call.cleanup.callback(self.policy.residuals.settle)
        return residual

    def install(self, call: ModelCall, activity: Activity) -> None:
        policy, position, options = self.policy, SchedulePosition(call), call.transformer_options
        if not policy.is_active(position, activity):
            return
        step = position.index() if policy.draws else 0
        state = ModelCallState(activity, step, replaced=self._replaced(call))
        options[STATE] = state
        state.residual = self._residual_call(call, position)
        if state.residual is not None:
            add_layer(options, ChainedAttention(self._layer, not_reached=state.forget_next, knows_places=True))
        # The self-attention patch also makes the matching that the other two use, as in the paper's implementation.
        _add_innermost(options["patches"], "attn1", *self._self_attention_pair)
        if policy.settings.merge_crossattn:
            _add_innermost(options["patches"], "attn2", *self._cross_attention_pair)
        if policy.settings.merge_mlp:
            network = call.model.diffusion_model
            layers = self._feed_forwards.setdefault(network, FeedForwards())
            layers.put(network, self._by_key, state, call.cleanup.enter_context(Shadows()))

    def _replaced(self, call: ModelCall) -> dict[str, dict[tuple[Any, ...], str]]:
        """Return who computes the attention of which blocks: with a patch, or a ``forward`` on the layer."""
        patches = call.transformer_options.get("patches_replace", {})
        found = {name: {key: computed_by(one) for key, one in patches.get(name, {}).items()} for name in _LAYERS}
        for block, module in described_blocks(call.model.diffusion_model):
            for name, reasons in found.items():
                if reason := computed_by(replacement(getattr(module, name))):
                    reasons[block.key] = reason
        return found

    def _before_self_attention(self, query: Tensor, context: Tensor, value: Tensor, extra_options: Options) -> Patched:
        """ComfyUI's ``attn1_patch``: all three are ``[batch, tokens, channels]`` before projection."""
        policy, tokens = self.policy, (query, context, value)
        block = self._by_key.get(_block_key(extra_options))
        if block is None:
            return tokens
        state: ModelCallState = extra_options[STATE]
        if block.then_over_time:
            state.visits[block.key] = state.visits.get(block.key, 0) + 1
        if _is_over_time(block, state) or _is_replaced("attn1", block, state):
            return tokens
        batch, _, height, width = extra_options["activations_shape"]
        # Tokens of another batch are not this picture's either: a size that cannot be says so.
        size = (height, width) if query.shape[0] == batch else (0, 0)
        with kept_memory():
            reduction = policy.reduction(block, query, size, state)
        if reduction is None:
            return tokens
        if not policy.settings.merge_attn:
            return tokens
        same = context is query and value is query  # as long as no other patch gives them tokens of their own
        if not (same or reduction.shrinks_queries or (_are_aligned(context, query) and _are_aligned(value, query))):
            state.activity.fall_back(_OTHER_KEYS)
            return tokens
        residual = where_kept(state.residual, block.name)
        if residual is not None:
            is_reduced = not residual.full
            state.next = _Next(block.name, reduction, is_reduced, query.shape[0])
            if not is_reduced:
                return tokens
        # Keys and values are the same tokens unless another patch changed them. Where it changed their number
        # (reference images appended to the context), they stay whole: attention allows that.
        keys = reduction.reduce(query) if same else _reduce_if_aligned(reduction, context, query)
        values = keys if value is context else _reduce_if_aligned(reduction, value, query)
        if not reduction.shrinks_queries:  # nothing of ours runs behind this attention
            state.activity.use(block.name, reduction.tokens, reduction.kept)
            return query, keys, values
        extra_options[_RESTORE] = reduction
        return keys if context is query else reduction.reduce(query), keys, values

    def _attend(self, func: Attend, q: Tensor, k: Tensor, v: Tensor, *args: object, **kwargs: object) -> Tensor:
        """One call of ``optimized_attention`` on ``[batch, tokens, channels]``; ``func`` is the next layer inside.

        Projections work token by token, so that tokens can be left out or averaged behind them as well.
        """
        state: ModelCallState = kwargs["transformer_options"][STATE]  # type: ignore[index]
        found, residual = state.next, state.residual
        if found is None or residual is None:
            return func(q, k, v, *args, **kwargs)
        state.next = None
        if not found.is_of(q):
            state.activity.fall_back(_PARTS)
            return func(q, k, v, *args, **kwargs)
        reduction = found.reduction

        def reduced() -> Tensor:
            tokens = (q, k, v)
            if not found.is_reduced:
                keys, values = _reduce_if_aligned(reduction, k, q), _reduce_if_aligned(reduction, v, q)
                tokens = (reduction.reduce(q) if reduction.shrinks_queries else q, keys, values)
            output = func(*tokens, *args, **kwargs)
            if reduction.shrinks_queries:
                return restored_output(reduction, output, found.place, state.activity)
            if not found.is_reduced:  # else it was counted with its keys
                state.activity.use(found.place, reduction.tokens, reduction.kept)
            return output

        state.restored = found.is_reduced and reduction.shrinks_queries
        return residual.attend(found.place, lambda: func(q, k, v, *args, **kwargs), reduced)

    def _before_cross_attention(self, query: Tensor, context: Tensor, value: Tensor, extra_options: Options) -> Patched:
        """ComfyUI's ``attn2_patch``: only the queries are image tokens."""
        state: ModelCallState = extra_options[STATE]
        block = self._by_key.get(_block_key(extra_options))
        if block is None or block.number not in state.reductions or _is_over_time(block, state):
            return query, context, value  # counted where that was decided
        reduction = None if _is_replaced("attn2", block, state) else state.reduction_for(block, query)
        if reduction is None:
            return query, context, value
        extra_options[_RESTORE] = reduction
        return reduction.reduce(query), context, value

    def _after_attention(self, output: Tensor, extra_options: Options) -> Tensor:
        """ComfyUI's ``attn1_output_patch`` and ``attn2_output_patch``: back to all tokens."""
        reduction: Reduction | None = extra_options.pop(_RESTORE, None)
        state: ModelCallState = extra_options[STATE]
        if reduction is None or state.restored:
            state.restored = False
            return output
        return restored_output(reduction, output, self._by_key[_block_key(extra_options)].name, state.activity)


def _add_innermost(patches: Options, name: str, before: Function, after: Function | None) -> None:
    """Add a patch before and maybe one after attention ``name``, inside all pairs set by others.

    ComfyUI runs input and output patches in the same order, so pairs of two packs would cross: ours must come last on
    the way in and first on the way out.
    """
    patches[f"{name}_patch"] = [*patches.get(f"{name}_patch", ()), before]
    if after is not None:
        patches[f"{name}_output_patch"] = [after, *patches.get(f"{name}_output_patch", ())]


def _block_key(extra_options: Options) -> BlockKey:
    part, number = extra_options["block"][:2]
    return (part, number, extra_options["block_index"])


def _is_over_time(block: AttentionBlock, state: ModelCallState) -> bool:
    """Return whether the block that runs is the one over frames, which has the key of the spatial one before it."""
    return block.then_over_time and state.visits.get(block.key, 0) % 2 == 0


def _is_replaced(name: str, block: AttentionBlock, state: ModelCallState) -> bool:
    """Return whether another node's function stands in for attention ``name`` of a block, and note it."""
    reasons = state.replaced.get(name)
    if not reasons:
        return False
    reason = reasons.get(block.key) or reasons.get(block.key[:2])
    if reason:
        state.activity.skip(block.name, reason + _PLACES)
    return bool(reason)


def _are_aligned(tokens: Tensor, query: Tensor) -> bool:
    return tokens.shape[:2] == query.shape[:2]


def _reduce_if_aligned(reduction: Reduction, tokens: Tensor, query: Tensor) -> Tensor:
    return reduction.reduce(tokens) if _are_aligned(tokens, query) else tokens


def _compiled(policy: TokenMergingPolicy[AttentionBlock], call: ModelCall) -> str:
    """Return why compiled code has no place for what is kept; "" if it has one, or nothing is compiled."""
    technique: Any = find(call.techniques, COMPILATION)
    if is_compiled_by_others(call.transformer_options):
        return COMPILED
    # Where blocks share their code, what merges tokens runs outside of it.
    return policy.refused_by("" if technique is None or technique.blocks_share_code else technique.policy.how.scope)


def token_merging_for(patcher: ModelPatcher, settings: TokenMergingSettings) -> ComfyTokenMerging:
    """Return Apply ToMe for a MODEL; `UnsupportedModel` if it has no UNet, or no block would be reached."""
    require_model(patcher)
    if is_unet(patcher):
        return ComfyTokenMerging(patcher, settings)
    family = find_family(patcher.model.diffusion_model)
    attention = "" if family is not None and not family.override_hook else ", Set Attention Processor"
    raise no_unet(describe_model(patcher), f"Reuse Steps{attention} and Compile UNet")
