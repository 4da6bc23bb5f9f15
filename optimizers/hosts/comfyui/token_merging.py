"""Token merging (ToMe) in ComfyUI's UNets: merge before a layer, run it on fewer tokens, spread its output again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from ...activity import Activity, Summary
from ...errors import InvalidSetting, UnsupportedModel
from ...token_merging import (
    Matching,
    TokenMergingSettings,
    match,
    merge,
    partition_tokens,
    random_offsets,
    unmerge,
)
from .schedule import in_window, step_index
from .stack import ModelCall, Technique
from .unet import (
    AttentionBlock,
    BlockKey,
    attention_blocks,
    block_name,
    describe_model,
    is_unet,
    require_model,
    transformer_blocks,
)

_STATE = "paceline_token_merging"
_UNMERGE = "paceline_unmerge"

_OTHER_PATCH = "another node had already rearranged the tokens (ComfyUI's own ToMe, HyperTile, ...)"
_OTHER_OUTPUT = "another node's attention replacement returned all tokens instead of the merged ones"


@dataclass
class _CallState:
    """What one model call shares between the patches of its blocks; reaches them through ``extra_options``."""

    activity: Activity
    step: torch.Tensor
    matchings: dict[BlockKey, Matching] = field(default_factory=dict)


def eligible_blocks(patcher: Any, settings: TokenMergingSettings) -> tuple[AttentionBlock, ...]:
    """Return the transformer blocks whose tokens ``settings`` would merge.

    Raises:
        UnsupportedModel: if the model is of a family without such blocks, or none is at an allowed resolution.
    """
    require_model(patcher)
    if not is_unet(patcher):
        raise UnsupportedModel(
            f"Apply ToMe cannot merge tokens in {describe_model(patcher)}: it has none of the UNet transformer blocks "
            "that token merging was made for.",
            "It works with UNet models (SD 1.x, SD 2.x, SDXL and their relatives); remove the node for this model.",
        )
    blocks = [block for block in attention_blocks(patcher) if block.self_attention]
    if not blocks:
        raise UnsupportedModel(
            f"{describe_model(patcher)} has no self-attention blocks, so there are no tokens to merge.",
            "Remove the node for this model.",
        )
    levels = sorted({block.downsample for block in blocks})
    limit = levels[0] if settings.max_downsample == "auto" else int(settings.max_downsample)
    chosen = tuple(block for block in blocks if block.downsample <= limit)
    if not chosen:
        raise UnsupportedModel(
            f"max_downsample is {limit}, but {describe_model(patcher)} has its first self-attention at downsample "
            f"{levels[0]}: no block would be merged.",
            f"Set max_downsample to auto or to one of: {', '.join(map(str, levels))}.",
        )
    return chosen


class UNetTokenMerging(Technique):
    """Apply ToMe on one MODEL.

    Args:
        patcher: the MODEL, read for its structure only.
        settings: what to merge and how much.
        node_id: the node to report to.

    Raises:
        UnsupportedModel: see :func:`eligible_blocks`.
    """

    kind = "token_merging"
    order = 20
    title = "Apply ToMe"

    def __init__(self, patcher: Any, settings: TokenMergingSettings, node_id: str | None = None) -> None:
        super().__init__(node_id)
        self.settings = settings
        chosen = eligible_blocks(patcher, settings)
        # A block's number is part of its random sequence, so it counts all blocks: changing max_downsample must not
        # change which tokens the other blocks keep.
        spatial = [block for block in attention_blocks(patcher) if block.self_attention]
        numbers = {block.key: number for number, block in enumerate(spatial)}
        self.block_numbers: dict[BlockKey, int] = {block.key: numbers[block.key] for block in chosen}
        self.total_blocks = len(spatial)
        self.levels = sorted({block.downsample for block in chosen})
        # One object for the life of the technique: compiled graphs are guarded on the identity of patches.
        self._pairs = {
            "attn1": (self._before_self_attention, self._after_attention),
            "attn2": (self._before_cross_attention, self._after_attention),
        }

    def describe(self) -> str:
        """Return the settings and how many blocks they reach."""
        levels = ", ".join("the latent's size" if level == 1 else f"1/{level} of it" for level in self.levels)
        return (
            f"{self.settings.describe()}; eligible: {len(self.block_numbers)} of {self.total_blocks} "
            f"self-attention blocks (at {levels})"
        )

    def install(self, call: ModelCall, activity: Activity) -> None:
        """Put merging in front of, and unmerging behind, the layers that the settings name."""
        settings = self.settings
        if not self._merges_something() or not in_window(call, settings.start_percent, settings.end_percent):
            activity.idle_calls += 1
            return
        state = _CallState(activity, step_index(call))
        call.transformer_options[_STATE] = state
        # The self-attention patch also makes the matching that the other two use, as in the paper's implementation.
        call.add_innermost_pair("attn1", *self._pairs["attn1"])
        if settings.merge_crossattn:
            call.add_innermost_pair("attn2", *self._pairs["attn2"])
        if settings.merge_mlp:
            call.cleanup.enter_context(self._merged_feed_forward(call, state))

    def summarize(self, activity: Activity) -> Summary:
        """Return e.g. ``active in 16 of 16 self-attention blocks; 4096 -> 2048 tokens; 0 fallbacks``."""
        if not self._merges_something():
            reason = "ratio is 0" if self.settings.ratio == 0 else "all three merge options are off"
            return Summary("inactive", f"off: {reason}")
        if activity.model_calls and activity.idle_calls == activity.model_calls:
            window = f"{self.settings.start_percent:g} to {self.settings.end_percent:g}"
            return Summary("inactive", f"not active: no step was between start and end percent ({window})")
        details = activity.fallback_lines()
        count = activity.fallback_count
        if not activity.used:
            return Summary("inactive", f"not active in any of {self.total_blocks} self-attention blocks", details)
        sizes = ", ".join(f"{before} -> {after}" for before, after in activity.token_sizes()) or "no tokens saved"
        text = f"active in {len(activity.used)} of {self.total_blocks} self-attention blocks; {sizes} tokens"
        if activity.idle_calls:
            text += f"; in {activity.model_calls - activity.idle_calls} of {activity.model_calls} model calls"
        return Summary("partly" if count else "active", f"{text}; {count} fallbacks", details)

    def _merges_something(self) -> bool:
        settings = self.settings
        return settings.ratio > 0 and (settings.merge_attn or settings.merge_crossattn or settings.merge_mlp)

    def _match(self, tokens: torch.Tensor, key: BlockKey, extra_options: dict[str, Any]) -> Matching | None:
        """Match tokens ``[batch, tokens, channels]`` of one block, or return None where they are not an image."""
        batch, _, height, width = extra_options["activations_shape"]
        if tokens.shape[0] != batch or tokens.shape[1] != height * width:
            return None
        settings = self.settings
        if settings.sx > width or settings.sy > height:
            raise InvalidSetting(
                f"Apply ToMe: sx is {settings.sx} and sy is {settings.sy}, but block {block_name(key)} has only "
                f"{width} x {height} tokens for an image of this size.",
                "Make sx and sy smaller, lower max_downsample, or make the image larger.",
            )
        cells: Any = {"sx": settings.sx, "sy": settings.sy, "device": tokens.device}
        offsets = None
        if settings.use_rand:
            step, number = extra_options[_STATE].step, self.block_numbers[key]
            offsets = random_offsets(height, width, seed=settings.seed, step=step, block=number, **cells)
        return match(tokens, partition_tokens(height, width, offsets=offsets, **cells), settings.ratio)

    def _before_self_attention(
        self, query: torch.Tensor, context: Any, value: Any, extra_options: dict[str, Any]
    ) -> tuple[Any, Any, Any]:
        """ComfyUI's ``attn1_patch``: all three arguments are ``[batch, tokens, channels]`` before projection."""
        key = _block_key(extra_options)
        if key not in self.block_numbers:
            return query, context, value
        state = extra_options[_STATE]
        matching = self._match(query, key, extra_options)
        if matching is None:
            state.activity.fall_back(_OTHER_PATCH)
            return query, context, value
        state.matchings[key] = matching
        if not self.settings.merge_attn:
            return query, context, value
        merged = _merge(query, key, matching, extra_options)
        # Keys and values are the same tokens unless another patch changed them. Where it changed their number
        # (reference images appended to the context), they stay whole: attention allows that.
        merged_context = merged if context is query else _merge_if_aligned(context, query, matching)
        if value is query:
            return merged, merged_context, merged
        if value is context:
            return merged, merged_context, merged_context
        return merged, merged_context, _merge_if_aligned(value, query, matching)

    def _before_cross_attention(
        self, query: torch.Tensor, context: Any, value: Any, extra_options: dict[str, Any]
    ) -> tuple[Any, Any, Any]:
        """ComfyUI's ``attn2_patch``: only the queries are image tokens."""
        key = _block_key(extra_options)
        matching = extra_options[_STATE].matchings.get(key)
        if matching is None:
            return query, context, value
        return _merge(query, key, matching, extra_options), context, value

    def _after_attention(self, output: torch.Tensor, extra_options: dict[str, Any]) -> torch.Tensor:
        """ComfyUI's ``attn1_output_patch`` and ``attn2_output_patch``: back to all tokens."""
        matching = extra_options.pop(_UNMERGE, None)
        if matching is None:
            return output
        if output.shape[1] == matching.slot_of_token.shape[1] != matching.token_of_slot.shape[1]:
            extra_options[_STATE].activity.fall_back(_OTHER_OUTPUT)
            return output
        return unmerge(output, matching)

    @contextmanager
    def _merged_feed_forward(self, call: ModelCall, state: _CallState) -> Iterator[None]:
        """For one model call, run the eligible blocks' feed-forward layers on merged tokens.

        ComfyUI has no patch point there. The layers' ``forward`` is shadowed on the live network for the length of
        the call only, as ComfyUI's own compile node does with modules, so no other clone ever sees it.
        """
        changed: list[tuple[Any, Any]] = []
        try:
            for description, block in transformer_blocks(call.model.diffusion_model):
                if description.key in self.block_numbers:
                    changed.append((block.ff, block.ff.__dict__.get("forward")))
                    block.ff.forward = _merged_forward(block.ff.forward, description.key, state)
            yield
        finally:
            for layer, previous in changed:
                if previous is None:
                    del layer.forward
                else:
                    layer.forward = previous


def _merged_forward(
    forward: Callable[[torch.Tensor], torch.Tensor], key: BlockKey, state: _CallState
) -> Callable[[torch.Tensor], torch.Tensor]:
    def merged_forward(tokens: torch.Tensor) -> torch.Tensor:
        matching = state.matchings.get(key)
        if matching is None:  # the tokens were not an image in this block: counted as a fallback there
            return forward(tokens)
        merged = merge(tokens, matching)
        state.activity.use(block_name(key), tokens.shape[1], merged.shape[1])
        return unmerge(forward(merged), matching)

    return merged_forward


def _merge(
    tokens: torch.Tensor, key: BlockKey, matching: Matching, extra_options: dict[str, Any]
) -> torch.Tensor:
    """Merge the tokens of one attention, and leave a note for the output patch of the same attention."""
    merged = merge(tokens, matching)
    extra_options[_UNMERGE] = matching
    extra_options[_STATE].activity.use(block_name(key), tokens.shape[1], merged.shape[1])
    return merged


def _merge_if_aligned(tokens: torch.Tensor, query: torch.Tensor, matching: Matching) -> torch.Tensor:
    return merge(tokens, matching) if tokens.shape[:2] == query.shape[:2] else tokens


def _block_key(extra_options: dict[str, Any]) -> BlockKey:
    part, number = extra_options["block"][:2]
    return (part, number, extra_options["block_index"])

