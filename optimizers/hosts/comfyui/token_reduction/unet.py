"""Token reduction in ComfyUI's UNets: reduce before a layer, run it on fewer tokens, make its output whole again."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from .....core.activity import Activity, Summary
from .....core.errors import InvalidSetting
from .....core.order import TOKEN_MERGING
from ....token_merging import Reduction, TokenMergingSettings, choose_method, plan_reduction
from ..schedule import in_window, ramp_factor, step_index
from ..stack import ModelCall, Technique
from ..unet import AttentionBlock, BlockKey, attention_blocks, block_name
from .eligible import eligible_blocks
from .feed_forward import MergedFeedForwards
from .sharing import Reductions, SharedReductions
from .summary import merges_queries, summarize
from .work import StepWork, saved_lines

STATE = "paceline_token_reduction"
_RESTORE = "paceline_restore_tokens"

_OTHER_PATCH = "another node had already rearranged the tokens (ComfyUI's own ToMe, HyperTile, ...)"
_OTHER_OUTPUT = "another node's attention replacement returned all tokens instead of the merged ones"
_OTHER_KEYS = "another node had added keys or values, so they are no longer one for each place of the picture"
_REPLACED = "another node computes this block's attention itself, and may take its keys for places of the picture"


@dataclass
class CallState:
    """What one model call shares between the patches of its blocks; reaches them through ``extra_options``."""

    activity: Activity
    step: torch.Tensor
    ratio_factor: float = 1.0
    replaced: Mapping[str, Container[tuple[Any, ...]]] = field(default_factory=dict)
    shared: Reductions = field(default_factory=dict)
    reductions: dict[BlockKey, Reduction] = field(default_factory=dict)
    visits: dict[BlockKey, int] = field(default_factory=dict)


class UNetTokenReduction(Technique[ModelCall]):
    """Apply ToMe on one UNet MODEL.

    Args:
        patcher: the MODEL, read for its structure only.
        settings: what to merge and how much.
        node_id: the node to report to.

    Raises:
        UnsupportedModel: if the model has no block that ``settings`` would reach.
    """

    kind = TOKEN_MERGING
    title = "Apply ToMe"

    def __init__(self, patcher: Any, settings: TokenMergingSettings, node_id: str | None = None) -> None:
        super().__init__(node_id)
        self.settings = settings
        spatial = [block for block in attention_blocks(patcher) if block.self_attention]
        self.blocks: dict[BlockKey, AttentionBlock] = {b.key: b for b in eligible_blocks(patcher, spatial, settings)}
        # A block's number is part of its random sequence, so it counts all blocks: changing max_downsample must not
        # change which tokens the other blocks keep.
        self._numbers = {block.key: number for number, block in enumerate(spatial)}
        self.total_blocks = len(spatial)
        self.levels = sorted({block.downsample for block in self.blocks.values()})
        self._work = StepWork.of(patcher.model.diffusion_model)
        self._shared = SharedReductions()
        self._feed_forwards = MergedFeedForwards()
        # One object for the life of the technique: compiled graphs are guarded on the identity of patches.
        self._self_attention_pair = (self._before_self_attention, self._after_attention)
        self._cross_attention_pair = (self._before_cross_attention, self._after_attention)

    def describe(self) -> str:
        """Return the settings and how many blocks they reach."""
        levels = ", ".join("the latent's size" if level == 1 else f"1/{level} of it" for level in self.levels)
        return (
            f"{self.settings.describe()}; eligible: {len(self.blocks)} of {self.total_blocks} "
            f"self-attention blocks (at {levels})"
        )

    def run_changed(self) -> None:
        """Forget the matchings of another run."""
        self._shared.clear()

    def install(self, call: ModelCall, activity: Activity) -> None:
        """Put reduction in front of, and restoring behind, the layers that the settings name."""
        settings = self.settings
        if not settings.does_something or not in_window(call, settings.start_percent, settings.end_percent):
            activity.idle_calls += 1
            return
        replaced = call.transformer_options.get("patches_replace", {})
        state = CallState(activity, step_index(call), ramp_factor(call, settings.ramp), replaced)
        if settings.refresh_every > 1:
            passes = call.transformer_options.get("uuids", call.transformer_options.get("cond_or_uncond", ()))
            fits = (call.sigmas.device, tuple(call.shapes.items()), tuple(passes), state.ratio_factor)
            state.shared = self._shared.of_call(fits, settings.refresh_every)
        call.transformer_options[STATE] = state
        # The self-attention patch also makes the matching that the other two use, as in the paper's implementation.
        call.add_innermost_pair("attn1", *self._self_attention_pair)
        if settings.merge_crossattn:
            call.add_innermost_pair("attn2", *self._cross_attention_pair)
        if settings.merge_mlp:
            network = call.model.diffusion_model
            layers = self._feed_forwards.in_place(network, self.blocks, state.reductions, activity)
            call.cleanup.enter_context(layers)

    def summarize(self, activity: Activity) -> Summary:
        """Return e.g. ``active in 16 of 16 self-attention blocks; 4096 -> 2048 tokens; 0 fallbacks``."""
        settings, lines = self.settings, tuple[str, ...]()
        # Over frames there are layers of their own, which nobody has counted.
        if settings.merge_attn and not any(block.then_over_time for block in self.blocks.values()):
            lines = saved_lines(self._work, self.blocks.values(), activity.tokens, merges_queries(settings))
        return summarize(settings, activity, self.total_blocks, saved=lines)

    def _method(self, tokens: torch.Tensor) -> str | None:
        method = self.settings.method
        if method != "auto":
            return method
        if self.settings.merge_crossattn or self.settings.merge_mlp:
            return "merge"  # the only ones of these layers' tokens that can be fewer are the queries
        return choose_method(tokens.shape[1], tokens.device.type)

    def _reduction(self, tokens: torch.Tensor, key: BlockKey, extra_options: dict[str, Any]) -> Reduction | None:
        """Decide how tokens ``[batch, tokens, channels]`` of one block are reduced, or None to leave them alone."""
        state: CallState = extra_options[STATE]
        batch, _, height, width = extra_options["activations_shape"]
        if tokens.shape[0] != batch or tokens.shape[1] != height * width:
            state.activity.fall_back(_OTHER_PATCH)
            return None
        settings = self.settings
        method = self._method(tokens)
        if method is None:
            state.activity.skip(block_name(key), f"{tokens.shape[1]} tokens are too few to gain from fewer")
            return None
        if method == "merge" and (settings.sx > width or settings.sy > height):
            raise InvalidSetting(
                f"Apply ToMe: sx is {settings.sx} and sy is {settings.sy}, but block {block_name(key)} has only "
                f"{width} x {height} tokens for an image of this size.",
                "Make sx and sy smaller, lower max_downsample, or make the image larger.",
            )
        ratio = settings.ratio_at(self.blocks[key].downsample, self.levels[0]) * state.ratio_factor

        def make() -> Reduction:
            number = self._numbers[key]
            return plan_reduction(
                tokens, height, width, settings, method=method, ratio=ratio, step=state.step, block=number
            )

        if settings.refresh_every == 1 or method == "kv_downsample":
            return make()
        place = (key[0], self.blocks[key].downsample)
        reduction = state.shared.get(place)
        if reduction is None or reduction.tokens != tokens.shape[1]:  # another size where a node has shrunk some blocks
            reduction = state.shared[place] = make()
        return reduction

    def _is_over_time(self, key: BlockKey, state: CallState) -> bool:
        """Return whether the block that runs is the one over frames, which has the key of the spatial one before it."""
        return self.blocks[key].then_over_time and state.visits.get(key, 0) % 2 == 0

    def _before_self_attention(
        self, query: torch.Tensor, context: Any, value: Any, extra_options: dict[str, Any]
    ) -> tuple[Any, Any, Any]:
        """ComfyUI's ``attn1_patch``: all three arguments are ``[batch, tokens, channels]`` before projection."""
        key = _block_key(extra_options)
        if key not in self.blocks:
            return query, context, value
        state: CallState = extra_options[STATE]
        state.visits[key] = state.visits.get(key, 0) + 1
        if self._is_over_time(key, state) or _is_replaced("attn1", key, state):
            return query, context, value
        reduction = self._reduction(query, key, extra_options)
        if reduction is None:
            return query, context, value
        if self.settings.merge_crossattn or self.settings.merge_mlp:  # else nobody asks, and it would hold memory
            state.reductions[key] = reduction
        if not self.settings.merge_attn:
            return query, context, value
        if not reduction.shrinks_queries and not (_are_aligned(context, query) and _are_aligned(value, query)):
            state.activity.fall_back(_OTHER_KEYS)
            return query, context, value
        state.activity.use(block_name(key), reduction.tokens, reduction.kept)
        # Keys and values are the same tokens unless another patch changed them. Where it changed their number
        # (reference images appended to the context), they stay whole: attention allows that.
        keys = _reduce_if_aligned(reduction, context, query)
        values = keys if value is context else _reduce_if_aligned(reduction, value, query)
        if not reduction.shrinks_queries:
            return query, keys, values
        extra_options[_RESTORE] = reduction
        return keys if context is query else reduction.reduce(query), keys, values

    def _before_cross_attention(
        self, query: torch.Tensor, context: Any, value: Any, extra_options: dict[str, Any]
    ) -> tuple[Any, Any, Any]:
        """ComfyUI's ``attn2_patch``: only the queries are image tokens."""
        key = _block_key(extra_options)
        state: CallState = extra_options[STATE]
        reduction = state.reductions.get(key)
        if reduction is None or not reduction.shrinks_queries or self._is_over_time(key, state):
            return query, context, value
        if _is_replaced("attn2", key, state):
            return query, context, value
        state.activity.use(block_name(key), reduction.tokens, reduction.kept)
        extra_options[_RESTORE] = reduction
        return reduction.reduce(query), context, value

    def _after_attention(self, output: torch.Tensor, extra_options: dict[str, Any]) -> torch.Tensor:
        """ComfyUI's ``attn1_output_patch`` and ``attn2_output_patch``: back to all tokens."""
        reduction = extra_options.pop(_RESTORE, None)
        if reduction is None:
            return output
        if output.shape[1] == reduction.tokens != reduction.kept:
            extra_options[STATE].activity.fall_back(_OTHER_OUTPUT)
            return output
        restored: torch.Tensor = reduction.restore(output)
        return restored


def _block_key(extra_options: dict[str, Any]) -> BlockKey:
    part, number = extra_options["block"][:2]
    return (part, number, extra_options["block_index"])


def _is_replaced(name: str, key: BlockKey, state: CallState) -> bool:
    """Return whether another node's function stands in for attention ``name`` of a block, and note it."""
    functions = state.replaced.get(name, ())
    found = key in functions or key[:2] in functions
    if found:
        state.activity.skip(block_name(key), _REPLACED)
    return found


def _are_aligned(tokens: torch.Tensor, query: torch.Tensor) -> bool:
    return tokens.shape[:2] == query.shape[:2]


def _reduce_if_aligned(reduction: Reduction, tokens: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    return reduction.reduce(tokens) if _are_aligned(tokens, query) else tokens
