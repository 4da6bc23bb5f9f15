"""Token merging in ComfyUI's UNets: merge before a layer, run it on fewer tokens, make its output whole again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, int64, zeros
from torch.nn import Module

from ..core.activity import Activity
from ..core.not_copied import Function
from ..core.shadow import Shadows, computed_by, replacement
from ..models.families import find_family
from ..models.samplers import sampler_of
from ..token_merging.call import Reduction, TokenCall, merged_layer
from ..token_merging.kept import COMPILED, WINDOWS, SamplingStep
from ..token_merging.kv_downsample import FewerKeys
from ..token_merging.tome_policy import TokenMergingPolicy, no_unet
from ..token_merging.tome_settings import TokenMergingSettings
from ..token_merging.tomesd import Matching
from .run.attention_chain import Attend, ChainedAttention, add_layer
from .run.comfy_technique import ComfyTechnique, ModelCall
from .run.sampling_run import SamplerCall, SamplingRun, TakesPart, followed_sampler, stands_at
from .structure.model_facts import describe_model, is_compiled_by_others, is_unet, kept_memory, require_model
from .structure.protocols import ModelPatcher, Options
from .structure.unet_blocks import AttentionBlock, BlockKey, attention_blocks, described_blocks
from .structure.user_folder import user_folder

CALL = "paceline_token_merging"
_RESTORE = "paceline_restore_tokens"

_OTHER_KEYS = "another node added keys or values, so they do not match the places of the picture any more"
_PLACES = ", and may take its keys for places of the picture"
_PARTS = "another node computes attention in parts or in another layout, so no difference was kept or added"

Patched = tuple[Tensor, Tensor, Tensor]
"""What a patch in front of attention is given and returns: tokens for queries, keys and values."""


@dataclass
class ComfyTokenCall(TokenCall):
    """What the patches of a UNet's blocks share in one model call; reaches them through ``extra_options``.

    ``replaced``: why blocks are left alone whose attention another node computes itself, by its name and the block's;
    ``runs``: of each block; ``next``: block, keys and batch of the attention that comes next, which keeps a difference.
    """

    replaced: Mapping[str, Mapping[tuple[Any, ...], str]] = field(default_factory=dict)
    runs: dict[BlockKey, int] = field(default_factory=dict)
    next: tuple[AttentionBlock, FewerKeys, int] | None = None

    def forget_next(self) -> None:
        self.next = None

    def is_replaced(self, name: str, block: AttentionBlock) -> bool:
        """Return whether another node's function stands in for attention ``name`` of a block, and note it."""
        reasons = self.replaced.get(name, {})
        reason = reasons.get(block.key) or reasons.get(block.key[:2])
        if reason:
            self.activity.skip(block.name, reason + _PLACES)
        return bool(reason)


_numbers = count()
"""Tells predictions apart, also those of several runs."""


@dataclass
class Evaluations(TakesPart):
    """The predictions of one sampling run.

    Attributes:
        windows: whether the network sees the frames in windows, which move under the same conditionings.
        latest: the one that is made; None before the first.
        batch: pictures of the whole latent.
    """

    windows: bool
    latest: SamplingStep | None = None
    batch: int = 0
    begun: int = field(default_factory=_numbers.__next__)

    def evaluates(self, run: SamplingRun, guider: object, x: Tensor, timestep: Tensor, compute: Function) -> Any:
        sigma, active = stands_at(run, guider, timestep)
        self.batch = x.shape[0]
        # A sampler that begins again, because its steps were spoiled, must find nothing of them.
        self.latest = SamplingStep(run.levels, next(_numbers), sigma, (self.begun, active), whole=run.whole)
        return compute()


def step_of(call: ModelCall) -> Tensor:
    """Return the number of the sampling step as an int64 scalar tensor on the sampling device.

    It is found from the noise level, so that the positive and the negative pass of a step get the same number however
    ComfyUI batches them. Solvers that evaluate between two steps get the nearer one; outside of a sampler it is zero. A
    tensor, so that nothing waits for the GPU and nothing recompiles.
    """
    sigmas: Tensor | None = call.transformer_options.get("sample_sigmas")
    if sigmas is None:
        return zeros((), dtype=int64, device=call.sigmas.device)
    return (sigmas - call.sigmas.flatten()[0].to(sigmas)).abs().argmin()


class _OtherLayers:
    """Layers of one network beside self-attention on the tokens that it had: ComfyUI has no patch point around all.

    The functions that take the layers' place are made once and read what changes from call to call: compiled graphs
    are guarded on the functions, and a new one would be a new graph.
    """

    def __init__(self) -> None:
        self.call: ComfyTokenCall | None = None
        self._functions: dict[Module, tuple[Function, Function]] = {}

    def put(self, block: AttentionBlock, layer: Module, shadows: Shadows) -> None:
        inner, function = self._functions.get(layer, (None, None))
        if function is None or inner != layer.forward:  # somebody else may shadow it in each call
            function = merged_layer(block, layer.forward, lambda: self.call)
            self._functions[layer] = (layer.forward, function)
        shadows.put(layer, "forward", function)

    def forget(self) -> None:
        self.call = None  # it holds the tokens of the whole call


class ComfyTokenMerging(ComfyTechnique[ModelCall]):
    """Apply ToMe on one MODEL, read for its structure only; `UnsupportedModel` without a UNet, or a block to reach."""

    policy: TokenMergingPolicy[AttentionBlock]

    def __init__(self, patcher: ModelPatcher, settings: TokenMergingSettings) -> None:
        require_model(patcher)
        if not is_unet(patcher):
            family = find_family(patcher.model.diffusion_model)
            attention = "" if family is not None and not family.override_hook else ", Set Attention Processor"
            raise no_unet(describe_model(patcher), f"Reuse Steps{attention} and Compile UNet")
        blocks = [block for block in attention_blocks(patcher) if block.self_attention]
        policy = TokenMergingPolicy(describe_model(patcher), blocks, settings)
        super().__init__(policy)
        policy.allocating = kept_memory
        policy.gains.file = user_folder("tome_times.json")
        self._by_key = {block.key: block for block in policy.blocks}
        self._other_layers: WeakKeyDictionary[Module, _OtherLayers] = WeakKeyDictionary()
        # One object for the life of the technique: compiled graphs are guarded on the identity of patches.
        # Each patch costs time in every block: where queries all stay, nothing is to be done behind attention.
        self._before, self._after = self._before_self_attention, self._after_attention if settings.merges else None
        self._layer: Attend = self._attend

    def run_begins(self, run: SamplingRun, call: SamplerCall) -> None:
        run.followed = sampler_of(followed_sampler(call)).once_a_step
        if self.policy.settings.keeps:
            run.kept[self.kind] = Evaluations("context_handler" in call.options)

    def install(self, call: ModelCall, activity: Activity) -> None:
        policy, options, settings = self.policy, call.transformer_options, self.policy.settings
        if not settings.does_something:
            return
        evaluations: Any = call.run.kept.get(self.kind)
        latest, passes, refusal = None, tuple(options.get("uuids", ())), ""
        if evaluations is not None and evaluations.latest is not None and passes:
            latest = evaluations.latest
            # A wrapper of another node may cut the latent into tiles and hand over several at once.
            tiles = call.shapes["x"][0] != evaluations.batch * len(passes)
            refusal = WINDOWS if evaluations.windows or tiles else ""
        # Where Compile UNet compiles blocks that share code, what makes tokens fewer runs outside of it.
        refusal = COMPILED if is_compiled_by_others(options) else refusal
        sizes = frozenset(call.shapes.items())
        step = step_of(call) if policy.draws else 0
        beside, patched = [one.policy for one in call.techniques], call.foreign_patches
        seen = (latest, (passes, sizes), refusal, call.again)
        tokens = policy.call(ComfyTokenCall, activity, step, *seen, beside, patched)
        asked = [name for name in ("attn1", *settings.other_layers.values()) if name != "ff"]
        options[CALL], tokens.replaced = tokens, _replaced(call, asked)
        if tokens.record is not None:
            call.cleanup.callback(tokens.settle)
            add_layer(options, ChainedAttention(self._layer, not_reached=tokens.forget_next, knows_places=True))
        # The self-attention patch also makes the matching that the other two use, as in the paper's implementation.
        # ComfyUI runs input and output patches in the same order, so pairs of two packs would cross: ours come last on
        # the way in and first on the way out, inside of all others.
        patches = options["patches"]
        patches["attn1_patch"] = [*patches.get("attn1_patch", ()), self._before]
        if self._after is not None:
            patches["attn1_output_patch"] = [self._after, *patches.get("attn1_output_patch", ())]
        if settings.other_layers:
            network, shadows = call.model.diffusion_model, call.cleanup.enter_context(Shadows())
            others = self._other_layers.setdefault(network, _OtherLayers())
            others.call = tokens
            shadows.on_undo(others.forget)
            for block, module in described_blocks(network):
                for name in settings.other_layers.values() if block.key in self._by_key else ():
                    if not tokens.is_replaced(name, block):
                        others.put(block, getattr(module, name), shadows)

    def _before_self_attention(self, query: Tensor, context: Tensor, value: Tensor, extra_options: Options) -> Patched:
        """ComfyUI's ``attn1_patch``: all three are ``[batch, tokens, channels]`` before projection."""
        tokens, block = (query, context, value), self._by_key.get(_block_key(extra_options))
        if block is None:
            return tokens
        call: ComfyTokenCall = extra_options[CALL]
        if block.then_over_time:  # every second run is of the block over frames, which has the spatial one's key
            call.runs[block.key] = call.runs.get(block.key, 0) + 1
            if call.runs[block.key] % 2 == 0:
                return tokens
        if call.is_replaced("attn1", block):
            return tokens
        batch, _, height, width = extra_options["activations_shape"]
        # Tokens of another batch are not this picture's either: a size that cannot be says so.
        size = (height, width) if query.shape[0] == batch else (0, 0)
        with kept_memory():
            reduction = call.reduction(block, query, size)
        if reduction is None or not call.settings.merge_attn:
            return tokens
        if isinstance(reduction, FewerKeys):
            if not (_are_aligned(context, query) and _are_aligned(value, query)):
                call.activity.fall_back(_OTHER_KEYS)
                return tokens
            if call.record is not None and call.keeps(block):
                call.next = (block, reduction, query.shape[0])
                if call.record.full:
                    return tokens
            call.activity.use(block.name, reduction.tokens, reduction.kept)
        else:
            extra_options[_RESTORE] = reduction
        # Keys and values are the same tokens unless another patch changed them. Where it changed their number
        # (reference images appended to the context), they stay whole: attention allows that.
        keys = _reduce_if_aligned(reduction, context, query)
        values = keys if value is context else _reduce_if_aligned(reduction, value, query)
        if isinstance(reduction, FewerKeys):
            return query, keys, values
        return keys if context is query else reduction.reduce(query), keys, values

    def _attend(self, func: Attend, q: Tensor, k: Tensor, v: Tensor, *args: object, **kwargs: object) -> Tensor:
        """One call of ``optimized_attention`` on ``[batch, tokens, channels]``; ``func`` is the next layer inside.

        Projections work token by token, so that tokens can be left out behind them as well.
        """
        call: ComfyTokenCall = kwargs["transformer_options"][CALL]  # type: ignore[index]
        record = call.record
        if call.next is None or record is None:
            return func(q, k, v, *args, **kwargs)
        (block, reduction, batch), call.next = call.next, None
        if q.shape[:-1] != (batch, reduction.tokens):  # a part of it
            call.activity.fall_back(_PARTS)
            return func(q, k, v, *args, **kwargs)

        def reduced() -> Tensor:
            if not record.full:  # it was counted with its keys
                return func(q, k, v, *args, **kwargs)
            keys, values = _reduce_if_aligned(reduction, k, q), _reduce_if_aligned(reduction, v, q)
            call.activity.use(block.name, reduction.tokens, reduction.kept)
            return func(q, keys, values, *args, **kwargs)

        output: Tensor = call.attend(block, lambda: func(q, k, v, *args, **kwargs), reduced)
        return output

    def _after_attention(self, output: Tensor, extra_options: Options) -> Tensor:
        """ComfyUI's ``attn1_output_patch``: back to all tokens."""
        reduction: Matching | None = extra_options.pop(_RESTORE, None)
        if reduction is None:
            return output
        call: ComfyTokenCall = extra_options[CALL]
        return call.restored(self._by_key[_block_key(extra_options)], reduction, output)


def _replaced(call: ModelCall, layers: Sequence[str]) -> dict[str, dict[tuple[Any, ...], str]]:
    """Return who computes these layers of which blocks: with a patch, or a ``forward`` on the layer."""
    patches = call.transformer_options.get("patches_replace", {})
    found = {name: {key: computed_by(one) for key, one in patches.get(name, {}).items()} for name in layers}
    for block, module in described_blocks(call.model.diffusion_model):
        for name, reasons in found.items():
            if reason := computed_by(replacement(getattr(module, name))):
                reasons[block.key] = reason
    return found


def _block_key(extra_options: Options) -> BlockKey:
    part, number = extra_options["block"][:2]
    return (part, number, extra_options["block_index"])


def _are_aligned(tokens: Tensor, query: Tensor) -> bool:
    return tokens.shape[:2] == query.shape[:2]


def _reduce_if_aligned(reduction: Reduction, tokens: Tensor, query: Tensor) -> Tensor:
    return reduction.reduce(tokens) if _are_aligned(tokens, query) else tokens
