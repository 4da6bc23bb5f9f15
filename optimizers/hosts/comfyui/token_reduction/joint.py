"""Token reduction in diffusion transformers: fewer image keys and values, inside of ComfyUI's attention override.

There, keys and values have been projected and keys carry their place in the picture as a rotation (RoPE). So image
tokens are left out on a regular grid and never averaged: the mean of keys that were rotated by different angles points
to no place at all. Queries all stay, so nothing has to be made whole again behind attention, and so do text tokens.

A call whose number of tokens is not exactly what the sizes of latent, reference images and text say (tokens added by
other nodes, references of families that mix them with the text) is left alone and counted: a grid that is cut out of
the wrong tokens would be garbage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from .....core.activity import Activity, Summary
from .....core.errors import UnsupportedModel
from .....core.order import TOKEN_MERGING
from ....families.family import TokenLayout
from ....token_merging import TokenMergingSettings, choose_method
from ..attention_chain import add_layer
from ..model import describe_model
from ..schedule import in_window, ramp_factor
from ..stack import ModelCall, Technique
from .layout import SAME_SIZE, ExpectedCalls, Layout, expected_calls
from .summary import summarize

STATE = "paceline_joint_token_reduction"

_OTHER_MASK = "keys, values and the attention mask are not of one size"
_OTHER_PLACES = "the network says that its image tokens are in other places than the sizes of latent and text do"


@dataclass
class CallState:
    """What one model call shares between its attention calls; reaches them through ``transformer_options``."""

    activity: Activity
    calls: ExpectedCalls
    ratio: float
    blocks_seen: int = 0
    kept: dict[tuple[int, torch.device], torch.Tensor] = field(default_factory=dict)


class JointTokenReduction(Technique[ModelCall]):
    """Apply ToMe on one diffusion transformer.

    Args:
        patcher: the MODEL, read for its structure only.
        tokens: how its network lays out its tokens.
        settings: how much to leave out, and when. ``max_downsample``, ``level_decay``, ``sx``, ``sy``, ``use_rand``,
            ``seed`` and ``refresh_every`` have no meaning here: all blocks have one resolution, nothing is matched.
        node_id: the node to report to.

    Raises:
        UnsupportedModel: if ``settings`` ask for what cannot be done in these models.
    """

    kind = TOKEN_MERGING
    title = "Apply ToMe"

    def __init__(
        self, patcher: Any, tokens: TokenLayout, settings: TokenMergingSettings, node_id: str | None = None
    ) -> None:
        super().__init__(node_id)
        _require_possible(describe_model(patcher), settings)
        self.tokens = tokens
        self.settings = settings
        network = patcher.model.diffusion_model
        self.total_blocks = sum(len(getattr(network, name, ())) for name in tokens.blocks)
        self._layer: Callable[..., Any] = self._attend  # one object for life: compiled graphs are guarded on it

    def describe(self) -> str:
        """Return what is left out, and where."""
        settings = self.settings
        parts = [f"{settings.method}: leave out {settings.ratio:.0%} of the image keys and values"]
        if settings.ramp != "none":
            parts.append(settings.ramp.replace("_", " "))
        if (settings.start_percent, settings.end_percent) != (0.0, 1.0):
            parts.append(f"from {settings.start_percent:.0%} to {settings.end_percent:.0%} of sampling")
        return (
            f"{', '.join(parts)}; eligible: {self.total_blocks} blocks ({self.tokens.eligible}); "
            "text and queries stay whole, max_downsample does not apply"
        )

    def install(self, call: ModelCall, activity: Activity) -> None:
        """Become a layer around the attention backend of this call."""
        settings = self.settings
        if not settings.does_something or not in_window(call, settings.start_percent, settings.end_percent):
            activity.idle_calls += 1
            return
        calls = expected_calls(self.tokens, call.model.diffusion_model, call.shapes)
        ratio = settings.ratio * ramp_factor(call, settings.ramp)
        call.transformer_options[STATE] = CallState(activity, calls, ratio)
        add_layer(call.transformer_options, self._layer, activity.fall_back)

    def summarize(self, activity: Activity) -> Summary:
        """Return e.g. ``active in 57 of 57 blocks; 4608 -> 1536 keys and values; 0 fallbacks``."""
        saved = (
            f"{before} -> {after}: {1 - after / before:.0%} less work in attention; other layers as before"
            for before, after in activity.token_sizes()
        )
        return summarize(self.settings, activity, self.total_blocks, "blocks", tuple(saved))

    def _attend(
        self,
        func: Callable[..., Any],
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        heads: int,
        mask: torch.Tensor | None = None,
        attn_precision: torch.dtype | None = None,
        skip_reshape: bool = False,
        **kwargs: Any,
    ) -> Any:
        """One call of ``optimized_attention``: ``func`` is the next layer inside, the rest are its arguments.

        Tensors are ``[batch, heads, tokens, head_dim]`` with ``skip_reshape``, ``[batch, tokens, channels]`` without.
        """
        options = kwargs["transformer_options"]
        kept = self._kept(options[STATE], options, q, k, v, mask, 2 if skip_reshape else 1)
        if kept is not None:
            axis = 2 if skip_reshape else 1
            k, v = k.index_select(axis, kept), v.index_select(axis, kept)
            if mask is not None and mask.shape[-1] != 1:
                mask = mask.index_select(-1, kept)
        return func(q, k, v, heads, mask=mask, attn_precision=attn_precision, skip_reshape=skip_reshape, **kwargs)

    def _kept(
        self,
        state: CallState,
        options: dict[str, Any],
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: torch.Tensor | None,
        axis: int,
    ) -> torch.Tensor | None:
        """Return which keys and values of a call stay, or None if the call is left as it is."""
        tokens, activity, calls = k.shape[axis], state.activity, state.calls
        if q.shape[axis] != tokens:
            return None  # attention to something else than itself
        layout = calls.eligible.get(tokens)
        if layout is None:
            if tokens not in calls.ordinary:
                expected = " or ".join(str(size) for size in calls.eligible)
                activity.fall_back(
                    f"{tokens} tokens instead of {expected} (reference images, or tokens added by another node)"
                )
            return None
        if tokens in calls.ambiguous:
            activity.fall_back(SAME_SIZE)
            return None
        if v.shape[axis] != tokens or (mask is not None and mask.shape[-1] not in (1, tokens)):
            activity.fall_back(_OTHER_MASK)
            return None
        if not _agrees(layout, options):
            activity.fall_back(_OTHER_PLACES)
            return None
        place = _place(state, options, joint=layout.text > 0)
        if self.settings.method == "auto" and choose_method(tokens, k.device.type) is None:
            activity.skip(place, f"{tokens} tokens are too few to gain from fewer")
            return None
        kept = state.kept.get((tokens, k.device))
        if kept is None:
            kept = state.kept[(tokens, k.device)] = layout.kept(state.ratio, k.device)
        activity.use(place, tokens, kept.shape[0])
        return kept if kept.shape[0] < tokens else None


def _agrees(layout: Layout, options: dict[str, Any]) -> bool:
    """Return whether ``layout`` is what the network itself says, where it does (Flux and its kin, Qwen-Image, Wan)."""
    start = options.get("img_slice")
    grid = options.get("grid_sizes")
    references = options.get("reference_image_num_tokens")
    image = layout.image
    return (
        (start is None or start[0] == layout.text)
        and (grid is None or tuple(grid) == (image.frames, image.rows, image.columns))
        and (references is None or tuple(references) == tuple(picture.tokens for picture in layout.references))
    )


def _place(state: CallState, options: dict[str, Any], joint: bool) -> str:
    """Return the name of the block that makes a call, e.g. ``double 3``."""
    if "block_index" in options:
        return f"{options.get('block_type', 'block')} {options['block_index']}"
    # SD3 does not number its blocks. Each begins with a joint call; an image call belongs to the same block.
    state.blocks_seen += joint
    return f"block {state.blocks_seen - 1}"


def _require_possible(model: str, settings: TokenMergingSettings) -> None:
    """Check that ``settings`` ask for nothing that the attention override cannot do.

    Raises:
        UnsupportedModel: if they do.
    """
    if settings.method not in ("auto", "kv_downsample"):
        raise UnsupportedModel(
            f"method is {settings.method}, but {model} is a diffusion transformer: where its attention can be reached, "
            "keys already carry their place in the picture, and tokens of different places cannot be averaged.",
            "Set method to auto or kv_downsample, which leave out keys and values instead.",
        )
    layers = [name for name in ("merge_crossattn", "merge_mlp") if getattr(settings, name)]
    if layers:
        raise UnsupportedModel(
            f"{' and '.join(layers)} cannot be used with {model}: of a diffusion transformer, only keys and values of "
            "the attention over the image can be reduced.",
            "Switch it off.",
        )
