"""Token merging in diffusion transformers: fewer image keys and values, inside of ComfyUI's attention override.

A call whose number of tokens is not exactly what the sizes of latent, reference images and text say stays as it is and
is counted: a grid that is cut out of the wrong tokens would be garbage.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from .....core.activity import THIS_BLOCK, Activity
from .....core.phrases import phrase
from ....families.family import IMAGE_FIRST, IMAGE_ONLY, TokenLayout
from ....token_merging import Reduction, TokenMergingSettings
from ....token_merging.joint_policy import SAME_SIZE, Grid, JointMergingPolicy, Layout, without
from ....token_merging.policy import counted
from ....token_merging.residual import ResidualCall, where_kept
from ..attention_chain import Attend, Layer, add_layer, calling
from ..evaluations import ComfyTokenMerging
from ..model import describe_model
from ..newer import checkpoint_attention_overrides, kept_memory, preferred_everywhere
from ..protocols import ModelPatcher, Options
from ..schedule import SchedulePosition
from ..stack import KEY, ModelCall

STATE = "paceline_joint_token_merging"

_OTHER_TOKENS = "{tokens} tokens instead of {expected} (reference images, or tokens added by another node)"
_OTHER_MASK = "keys, values and the attention mask are not of one size"
_OTHER_PLACES = "the network says that its image tokens are in other places than the sizes of latent and text do"


@dataclass(frozen=True)
class ExpectedCalls:
    """The attention calls a model call is expected to make.

    Attributes:
        eligible: layouts of the calls to reduce, by their number of tokens.
        ordinary: numbers of tokens of calls that are not reduced (the text with itself, refiners).
        ambiguous: numbers of tokens that both have.
        queries: numbers of queries of eligible calls for a part of the tokens.
    """

    eligible: Mapping[int, Layout]
    ordinary: Container[int]
    ambiguous: frozenset[int]
    queries: frozenset[int]


@dataclass
class JointCall:
    """What one model call shares between its attention calls; reaches them through ``transformer_options``.

    ``kept``: which keys stay, made by compiled code, by the number of tokens and the device; ``residual``: what the
    call does with the differences that leaving keys out makes, None for nothing.
    """

    calls: ExpectedCalls
    residual: ResidualCall | None = None
    blocks_seen: int = 0
    kept: dict[tuple[int, torch.device, bool], Tensor] = field(default_factory=dict)


class ComfyJointTokenMerging(ComfyTokenMerging):
    """Apply ToMe on one diffusion transformer, read for its structure only; `UnsupportedModel` for some settings."""

    policy: JointMergingPolicy

    def __init__(self, patcher: ModelPatcher, tokens: TokenLayout, settings: TokenMergingSettings) -> None:
        network = patcher.model.diffusion_model
        blocks = sum(len(attrgetter(name)(network)) for name in tokens.blocks)
        self._preferred = preferred_everywhere(network)
        places, notes = phrase("blocks"), () if self._preferred else checkpoint_attention_overrides(network)
        super().__init__(JointMergingPolicy(describe_model(patcher), settings, places, blocks, tokens.eligible, notes))
        self.tokens = tokens
        self._layer: Attend = self._attend  # one object for life: compiled graphs are guarded on it
        self._boxed_layer: Attend = self._attend_boxed

    def install(self, call: ModelCall, activity: Activity) -> None:
        position = SchedulePosition(call)
        if not self.policy.is_active(position, activity):
            return
        calls = expected_calls(self.tokens, call.model.diffusion_model, call.shapes)
        residual = self.residual_call(call, position)
        call.transformer_options[STATE] = JointCall(calls, residual)
        # To compute a call both ways, what its containers hold must outlive the first.
        boxed = self._boxed_layer if residual is None else None
        add_layer(call.transformer_options, Layer(self._layer, boxed, activity))
        if self._preferred is not None:  # ComfyUI itself leaves it out wherever there is an override
            preferred = calling(self._preferred)
            add_layer(call.transformer_options, Layer(preferred, preferred), innermost=True)

    def _attend(
        self,
        func: Attend,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        heads: int,
        mask: Tensor | None = None,
        attn_precision: torch.dtype | None = None,
        skip_reshape: bool = False,
        **kwargs: object,
    ) -> Tensor:
        """One call of ``optimized_attention``: ``func`` is the next layer inside, the rest are its arguments.

        Tensors are ``[batch, heads, tokens, head_dim]`` with ``skip_reshape``, ``[batch, tokens, channels]`` without.
        """
        axis = 2 if skip_reshape else 1
        options: Options = kwargs["transformer_options"]  # type: ignore[assignment]

        def attend(k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            return func(q, k, v, heads, mask=mask, attn_precision=attn_precision, skip_reshape=skip_reshape, **kwargs)

        place, kept = self._kept(options, q, k, v, mask, axis)
        if kept is None:
            return attend(k, v, mask)

        def reduced() -> Tensor:
            return attend(*without(kept, k, v, mask, axis))

        state: JointCall = options[STATE]
        residual: ResidualCall | None = where_kept(state.residual, place, k.shape[axis], k.device)
        return reduced() if residual is None else residual.attend(place, lambda: attend(k, v, mask), reduced)

    def _attend_boxed(
        self,
        func: Attend,
        q: Any,
        k: Any,
        v: Any,
        heads: int,
        mask: Tensor | None = None,
        attn_precision: torch.dtype | None = None,
        skip_reshape: bool = False,
        **kwargs: Any,
    ) -> Tensor:
        """The same with q, k and v in ComfyUI's containers, which are handed on."""
        axis = 2 if skip_reshape else 1
        _, kept = self._kept(kwargs["transformer_options"], q.peek(), k.peek(), v.peek(), mask, axis)
        if kept is not None:
            k.tensor, v.tensor, mask = without(kept, k.peek(), v.peek(), mask, axis)
        return func(q, k, v, heads, mask=mask, attn_precision=attn_precision, skip_reshape=skip_reshape, **kwargs)

    def _kept(
        self, options: Options, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, axis: int
    ) -> tuple[str, Tensor | None]:
        """Return the block that makes a call, and which keys stay in it; None for all."""
        state: JointCall = options[STATE]
        call: ModelCall = options[KEY]
        tokens, activity, calls = k.shape[axis], call.activities[self.kind], state.calls
        whole = q.shape[axis] == tokens
        of_a_part = (
            q.shape[axis] in calls.queries or self.tokens.text_apart or (mask is not None and self.tokens.guides)
        )
        if not whole and not of_a_part:
            return "", None  # attention to something else than itself
        layout = calls.eligible.get(tokens)
        if layout is None:
            if tokens not in calls.ordinary:
                expected = ", ".join(str(size) for size in calls.eligible)
                activity.fall_back(_OTHER_TOKENS.format(tokens=tokens, expected=expected))
            return "", None
        if tokens in calls.ambiguous:
            activity.fall_back(SAME_SIZE)
            return "", None
        if v.shape[axis] != tokens or (mask is not None and mask.shape[-1] not in (1, tokens)):
            activity.fall_back(_OTHER_MASK)
            return "", None
        if not _agrees(layout, options):
            activity.fall_back(_OTHER_PLACES)
            return "", None
        # SD3's calls over the image alone belong to the block of the call before, as do those of LTX's guide frames.
        begins = layout.before > 0 or not self.tokens.image_attention
        begins = begins and (whole or mask is None or mask.shape[-2] == 1)
        place = THIS_BLOCK if call.in_block else _place(state, options, begins)
        residual = where_kept(state.residual, place, tokens, k.device)
        method = self.policy.method_for(place, tokens, k.device, activity, residual)
        if method is None:
            return "", None
        with_residual = residual is not None
        kept = self._kept_of(method, layout, k.device, state, call.in_block, with_residual)
        return place, counted(place, tokens, kept, activity, self.policy.all_stay(with_residual))

    def _kept_of(
        self,
        method: type[Reduction],
        layout: Layout,
        device: torch.device,
        state: JointCall,
        in_block: bool,
        with_residual: bool,
    ) -> Tensor:
        if not torch.compiler.is_compiling():
            with kept_memory():
                return self.policy.prepare(method, layout, device, with_residual)
        # Compiled code works it out by itself, as it knows all of the sizes.
        key = (layout.tokens, device, with_residual)
        kept = state.kept.get(key)
        if kept is None:
            kept = self.policy.kept(method, layout, device, with_residual)
            if not in_block:  # what one block's code keeps, that of the others cannot use
                state.kept[key] = kept
        return kept


def expected_calls(tokens: TokenLayout, network: torch.nn.Module, shapes: Mapping[str, Sequence[int]]) -> ExpectedCalls:
    """Work out the tokens of one model call from the sizes of what the network is given (``ModelCall.shapes``)."""
    patch = [getattr(network, name) or 1 for name in tokens.patch] or [1]
    sides = patch[0] if len(patch) == 1 else patch
    sides = (sides, sides) if isinstance(sides, int) else tuple(sides)
    image = _grid(shapes["x"], sides)
    parts = [shapes[name][1] for name in tokens.text if name in shapes]
    texts = {*parts, sum(parts)}
    text, padding = sum(parts), 0
    multiple = getattr(network, "pad_tokens_multiple", None)
    if multiple is not None:
        text = math.ceil(text / multiple) * multiple
        padding = -image.tokens % multiple
        texts.add(text)
    sound = sum(math.prod(size[i] for i in axes) for name, axes in tokens.sounds for size in _listed(shapes, (name,)))
    alone = image.tokens + padding
    joint = 0 if tokens.layout == IMAGE_ONLY else text + sound
    first, last = (0, joint) if tokens.layout == IMAGE_FIRST else (joint, 0)
    frame, guides = image.rows * image.columns, shapes[tokens.guides][2] if tokens.guides in shapes else 0
    first, last = first + tokens.whole_frames * frame, last + guides + padding
    thinned = Grid(image.frames - tokens.whole_frames - math.ceil(guides / frame), image.rows, image.columns)
    references = tuple(_grid(shape, sides) for shape in _listed(shapes, ("ref_latents",) if tokens.references else ()))
    before, behind = (_tokens(shapes, names, sides) for names in (tokens.before, tokens.behind))
    chosen = [Layout(first + before, thinned, references, behind + last), Layout(first, thinned, references, last)]
    if tokens.segments:
        (target,) = chosen[:1]
        ordinary = range(target.before + 1)  # a part's keys end with it
        return ExpectedCalls({target.tokens: target}, ordinary, frozenset(), frozenset([image.tokens]))
    calls = {getattr(network, name) for name in tokens.more_calls}
    if tokens.frames_apart:
        chosen.append(Layout(first, thinned, (), last + frame))
        calls.add(alone - frame)  # the other video's own
    if tokens.image_attention:
        # Where both kinds are reduced (SD3), the text has no calls of its own that reach the hook.
        chosen.append(Layout(0, image, (), padding))
    elif joint:
        calls |= {*texts, alone, before, before + alone}
    else:
        calls |= {*texts, sound}
    eligible = {layout.tokens: layout for layout in chosen}
    queries = frozenset([frame]) if tokens.frames_apart else frozenset()
    return ExpectedCalls(eligible, frozenset(calls), frozenset(calls & eligible.keys()), queries)


def _listed(shapes: Mapping[str, Sequence[int]], names: tuple[str, ...]) -> list[Sequence[int]]:
    """Return the sizes of tensors of these names, and of those in lists of these names."""
    return [shape for name in names for found, shape in shapes.items() if found == name or found.startswith(f"{name}[")]


def _tokens(shapes: Mapping[str, Sequence[int]], names: tuple[str, ...], patch: Sequence[int]) -> int:
    """Return how many tokens latents, or tokens ``[batch, tokens, channels]``, of these names have."""
    return sum(shape[1] if len(shape) == 3 else _grid(shape, patch).tokens for shape in _listed(shapes, names))


def _grid(latent: Sequence[int], patch: Sequence[int]) -> Grid:
    """Return the tokens of a latent ``[batch, channels, (frames,) height, width]``, padded to whole patches."""
    rows, columns = math.ceil(latent[-2] / patch[-2]), math.ceil(latent[-1] / patch[-1])
    frames = math.ceil(latent[-3] / (patch[0] if len(patch) == 3 else 1)) if len(latent) == 5 else 1
    return Grid(frames, rows, columns)


def _agrees(layout: Layout, options: Options) -> bool:
    """Return whether ``layout`` is what the network itself says, where it does (Flux and its kin, Qwen-Image, Wan)."""
    start = options.get("img_slice")
    grid = options.get("grid_sizes")  # with the frames of references
    references = options.get("reference_image_num_tokens")
    image = layout.image
    return (
        (start is None or start[0] == layout.before)
        and (grid is None or tuple(grid[1:]) == (image.rows, image.columns))
        and (references is None or sum(references) == layout.tokens - layout.before - image.tokens)
    )


def _place(state: JointCall, options: Options, begins: bool) -> str:
    """Return the name of the block that makes a call, e.g. ``double 3``."""
    if "block_index" in options:
        return f"{options.get('block_type', 'block')} {options['block_index']}"
    state.blocks_seen += begins  # SD3, MiniMax H3 and LTX do not number their blocks
    return f"block {state.blocks_seen - 1}"
