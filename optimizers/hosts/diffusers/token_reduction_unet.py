"""Token reduction in diffusers' UNets: around the forward of single layers, whatever processor runs inside."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any

import torch

from ....core.errors import InvalidSetting, UnsupportedModel
from ...token_merging import Reduction, TokenMergingSettings, choose_method, kept_tokens, plan_reduction
from .host import Host
from .intercept import AttentionIntercept
from .patches import Patches, current
from .token_reduction import TokenReduction
from .unet import Block, image_attention

_OTHER_TOKENS = "the number of tokens is not that of the image (another package rearranged them)"
_MASK = "an attention mask over the image was given, and merged tokens have no place in it"
_ALL_KEPT = "at this ratio, so small a grid keeps all of its tokens"
_NO_SDPA = "the attention processor does not use scaled_dot_product_attention, so its keys cannot be reached"
_OTHER_OUTPUT = "the attention returned another number of tokens than it was given"


class UNetTokenReduction(TokenReduction):
    """Apply ToMe on one ``UNet2DConditionModel``.

    Raises:
        UnsupportedModel: on attaching, if it has no block that the settings would reach.
    """

    def __init__(self, settings: TokenMergingSettings) -> None:
        super().__init__(settings)
        self.blocks: tuple[Block, ...] = ()
        self._latent = (0, 0)
        self._step: torch.Tensor | int = 0
        self._first = 1
        self._reductions: dict[int, Reduction | None] = {}
        self._shared: dict[Hashable, Reduction] = {}
        self._calls = 0
        self._seen = 0

    def describe(self) -> str:
        """Return the settings and how many blocks they reach."""
        return f"{self.settings.describe()}; eligible: {len(self.blocks)} of {self.total_places} {self.places}"

    def attach(self, host: Host, patches: Patches) -> None:
        """Shadow the forward of the layers that the settings name."""
        unet, settings = host.component.part, self.settings
        all_blocks = image_attention(unet)
        self.total_places = len(all_blocks)
        self.blocks = self._eligible(host.component.class_name, all_blocks)
        self._first = min(block.downsample for block in self.blocks)
        for block in self.blocks:
            if block.joined:
                patches.shadow(block.module, "forward", self._thinned(block, current(block.module, "forward")))
                continue
            attention = block.module.attn1
            patches.shadow(attention, "forward", self._self_attention(block, current(attention, "forward")))
            if settings.merge_crossattn and block.module.attn2 is not None:
                attention = block.module.attn2
                patches.shadow(attention, "forward", self._queries_merged(block, current(attention, "forward")))
            if settings.merge_mlp:
                layer = block.module.ff
                patches.shadow(layer, "forward", self._queries_merged(block, current(layer, "forward")))

    def before(self, host: Host, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note the size of the image and the step."""
        super().before(host, args, kwargs)
        # What compiled code reads must be the same at the start of every call, or each would be compiled anew.
        self._reductions = {}
        self._seen = 0
        if not self.active:
            return
        sample = kwargs["sample"] if "sample" in kwargs else args[0]
        self._latent = (sample.shape[-2], sample.shape[-1])
        settings = self.settings
        if self._calls % settings.refresh_every == 0:
            self._shared = {}
        self._calls += 1
        if settings.use_rand and settings.method in ("auto", "merge"):
            # A tensor, so that compiled code serves all steps. It is not read back.
            step = self.position.index(kwargs.get("timestep", args[1] if len(args) > 1 else None))
            self._step = torch.tensor(step, dtype=torch.int64).to(sample.device, non_blocking=True)

    def run_changed(self) -> None:
        """Forget the matchings of another run."""
        self._calls = 0
        self._shared = {}

    def _eligible(self, model: str, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
        settings = self.settings
        if not blocks:
            raise UnsupportedModel(
                f"Apply ToMe: {model} has no self-attention over the image.", "Leave TokenMerging out for this model."
            )
        first = min(block.downsample for block in blocks)
        limit = first if settings.max_downsample == "auto" else settings.max_downsample
        chosen = tuple(block for block in blocks if block.downsample <= limit)
        if not chosen:
            raise UnsupportedModel(
                f"Apply ToMe: max_downsample is {limit}, but the finest self-attention of this {model} is at 1/{first} "
                "of the latent's size.",
                f"Set max_downsample to {first} or more, or to auto.",
            )
        merges = settings.merge_crossattn or settings.merge_mlp or settings.method in ("merge", "local_merge")
        if merges and any(block.joined for block in chosen):
            raise UnsupportedModel(
                f"Apply ToMe: method is {settings.method}, but the self-attention of this {model} has text among its "
                "keys and its residual inside, so queries cannot be merged around it.",
                "Set method to auto or kv_downsample, with merge_crossattn and merge_mlp off.",
            )
        return chosen

    def _method(self, tokens: int, device: torch.device) -> str | None:
        settings = self.settings
        if settings.method != "auto":
            return settings.method
        if settings.merge_crossattn or settings.merge_mlp:
            return "merge"  # the only ones of these layers' tokens that can be fewer are the queries
        return choose_method(tokens, device.type)

    def _chosen(self, block: Block, count: int, device: torch.device) -> tuple[str, int, int, float] | None:
        """Return method, rows, columns and ratio for a block with ``count`` image tokens, or None to leave it alone."""
        rows, columns = block.size(self._latent)
        if count != rows * columns:
            self.activity.fall_back(_OTHER_TOKENS)
            return None
        method = self._method(count, device)
        if method is None:
            self.activity.skip(block.name, f"{count} tokens are too few to gain from fewer")
            return None
        settings = self.settings
        if method == "merge" and (settings.sx > columns or settings.sy > rows):
            raise InvalidSetting(
                f"Apply ToMe: sx is {settings.sx} and sy is {settings.sy}, but {block.name} has only "
                f"{columns} x {rows} tokens for an image of this size.",
                "Make sx and sy smaller, lower max_downsample, or make the image larger.",
            )
        return method, rows, columns, settings.ratio_at(block.downsample, self._first) * self.ratio_factor

    def _reduction(self, block: Block, tokens: torch.Tensor) -> Reduction | None:
        chosen = self._chosen(block, tokens.shape[1], tokens.device)
        if chosen is None:
            return None
        method, rows, columns, ratio = chosen
        settings = self.settings
        shared = settings.refresh_every > 1 and method != "kv_downsample"
        fits = (tokens.device, tokens.dtype, tokens.shape[0], rows, columns, ratio, block.part)
        if shared and fits in self._shared:
            return self._shared[fits]
        reduction = plan_reduction(
            tokens, rows, columns, settings, method=method, ratio=ratio, step=self._step, block=block.number
        )
        if reduction.kept == reduction.tokens:
            self.activity.skip(block.name, _ALL_KEPT)
            return None
        if shared:
            self._shared[fits] = reduction
        return reduction

    def _self_attention(self, block: Block, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``forward`` of a self-attention with fewer keys, or fewer tokens altogether."""
        settings = self.settings

        @functools.wraps(forward)
        def reduced(
            hidden_states: torch.Tensor,
            encoder_hidden_states: torch.Tensor | None = None,
            attention_mask: torch.Tensor | None = None,
            **options: Any,
        ) -> Any:
            if not self.active or encoder_hidden_states is not None:
                return forward(
                    hidden_states,
                    encoder_hidden_states=encoder_hidden_states,
                    attention_mask=attention_mask,
                    **options,
                )
            reduction = self._reduction(block, hidden_states)
            if reduction is not None and attention_mask is not None:
                self.activity.fall_back(_MASK)
                reduction = None
            if settings.merge_crossattn or settings.merge_mlp:  # else nobody asks, and it would hold memory
                self._reductions[block.number] = reduction
            if reduction is None or not settings.merge_attn:
                return forward(hidden_states, attention_mask=attention_mask, **options)
            self.activity.use(block.name, reduction.tokens, reduction.kept)
            keys = reduction.reduce(hidden_states)
            if not reduction.shrinks_queries:
                return forward(hidden_states, encoder_hidden_states=keys, **options)
            return self._restored(reduction, forward(keys, **options))

        return reduced

    def _queries_merged(self, block: Block, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``forward`` of a layer whose first argument is the image, with the block's merging around it."""

        @functools.wraps(forward)
        def merged(hidden_states: torch.Tensor, *args: Any, **options: Any) -> Any:
            reduction = self._reductions.get(block.number) if self.active else None
            if reduction is None or not reduction.shrinks_queries:
                return forward(hidden_states, *args, **options)
            self.activity.use(block.name, reduction.tokens, reduction.kept)
            return self._restored(reduction, forward(reduction.reduce(hidden_states), *args, **options))

        return merged

    def _restored(self, reduction: Reduction, output: torch.Tensor) -> torch.Tensor:
        if output.shape[1] == reduction.tokens != reduction.kept:
            self.activity.fall_back(_OTHER_OUTPUT)
            return output
        return reduction.restore(output)

    def _thinned(self, block: Block, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``forward`` of an attention with text among its keys; the image's keys come behind the text's."""

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> torch.Tensor:
            self._seen += 1
            mask = options.get("attn_mask")
            chosen = self._chosen(block, q.shape[2], q.device)
            text = k.shape[2] - q.shape[2]
            if chosen is not None and text >= 0:
                _, rows, columns, ratio = chosen
                kept = kept_tokens(rows, columns, ratio, k.device) + text
                kept = torch.cat([torch.arange(text, device=k.device), kept])
                self.activity.use(block.name, k.shape[2], kept.shape[0])
                k, v = k.index_select(2, kept), v.index_select(2, kept)
                if mask is not None and mask.shape[-1] != 1:
                    options["attn_mask"] = mask.index_select(-1, kept)
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)

        mode = AttentionIntercept(attend)

        @functools.wraps(forward)
        def thinned(*args: Any, **options: Any) -> Any:
            if not self.active:
                return forward(*args, **options)
            seen = self._seen
            with mode:
                result = forward(*args, **options)
            if self._seen == seen:
                self.activity.fall_back(_NO_SDPA)
            return result

        return thinned
