"""Compile UNet: the compiled network takes the place of a MODEL's network for one model call at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from ...compilation.changing import Sizes, WeightGuards
from ...compilation.compile_policy import CompilePolicy
from ...compilation.compile_settings import NetworkSettings
from ...compilation.compiler import BLOCK_CALL, CompiledNetwork, Compiler, describe_blocks, repeated_blocks
from ...core.activity import Activity
from ...core.errors import UnsupportedModel
from ...core.memory_format import first_channels_last
from ...core.not_copied import Function
from ...core.phrases import phrase
from ...core.shadow import Shadows, replacement
from ..run.comfy_technique import ComfyTechnique, ModelCall
from ..second_weights.clone import without_dynamic_vram
from ..second_weights.moves import SECOND_COPY
from ..structure.attention_owner import layers_with_a_preference
from ..structure.model_facts import FOREIGN_COMPILE, describe_model, is_compiled_by_others, require_model
from ..structure.protocols import ModelPatcher
from .blocks_alike import PATCHED, BlocksAlike, runs_python, why_uncompiled
from .comfy_env import REPLACED, refusal
from .host_attention import BREAK_REMEDIES, in_options

_FOREIGN = "another node (ComfyUI's TorchCompileModel, ...) compiles this model too and comes after this one"

_PARTS = "cond_or_uncond"
"""The option that says which part of the prompt each part of the batch is of."""


def compilable(patcher: ModelPatcher) -> tuple[ModelPatcher, tuple[str, ...]]:
    """Return a clone of a MODEL that can be compiled, and in sentences what was done for that.

    Raises `UnsupportedModel` if the model's memory manager cannot be switched to one that works with compiled models.
    """
    from comfy.patcher_extension import WrappersMP

    require_model(patcher)
    notes = []
    if patcher.is_dynamic():
        clone = without_dynamic_vram(patcher, describe_model(patcher))
        notes.append(SECOND_COPY)
    else:
        clone = patcher.clone()
    if clone.get_wrappers(WrappersMP.APPLY_MODEL, FOREIGN_COMPILE):
        notes.append("took ComfyUI's TorchCompileModel (or another pack's) off this model")
    clone.remove_wrappers_with_key(WrappersMP.APPLY_MODEL, FOREIGN_COMPILE)
    clone.model_options.pop("torch_compile_kwargs", None)
    return clone, tuple(notes)


class CompileUNet(ComfyTechnique[ModelCall]):
    """torch.compile on the network of a MODEL, which is read for its structure only.

    Compiled is ``_forward`` where the network has it, else ``forward``: wrappers around the network (EasyCache, hooks
    of other packs), which choose in Python whether it runs at all, then stay outside.

    Raises `UnsupportedModel` for repeated blocks where there are none, `BackendUnavailable` if the mode cannot work
    here and no fallback is allowed.

    ``blocks_share_code``: whether its blocks are compiled, in place of the whole network.
    """

    policy: CompilePolicy

    def __init__(
        self, patcher: ModelPatcher, how: NetworkSettings, compiler: Compiler, notes: tuple[str, ...] = ()
    ) -> None:
        network = patcher.model.diffusion_model
        blocks = describe_blocks(network)
        self.blocks_share_code = how.scope == "repeated_blocks" or (how.scope == "auto" and bool(blocks))
        what = blocks if self.blocks_share_code else phrase("whole model")
        if not what:
            raise UnsupportedModel(f"{describe_model(patcher)} has no blocks that repeat.", "Choose scope whole_model.")
        super().__init__(CompilePolicy("Compile UNet", how, what, notes, break_remedies=BREAK_REMEDIES))
        self._compiler = compiler
        self._preferring = layers_with_a_preference(network)

    def install(self, call: ModelCall, activity: Activity) -> None:
        network = call.model.diffusion_model
        forward, function = _forward(network), None
        reason = self._refusal(call, forward)
        if reason is not None:
            activity.fall_back(reason)
            return
        compiled = self._compiler.once(
            call.model, (self.policy.how, self.blocks_share_code), partial(self._compile, network)
        )
        self.policy.use(compiled, self._compiler.observer(self.node_id))
        call.cleanup.enter_context(self.policy.counted(compiled, self.policy.what, activity))
        if not self._preferring:  # an override would disable these layers' own attention
            in_options(call.transformer_options)
        shadows = call.cleanup.enter_context(Shadows())
        if self.blocks_share_code:
            blocks = BlocksAlike(call)
            for block in repeated_blocks(network):
                if why := why_uncompiled(block, self.policy.how.fullgraph, shadows):
                    activity.fall_back(why)
                else:
                    shadows.put(block, BLOCK_CALL, compiled.call_of(block, blocks.alike))
        else:
            function = _given(compiled, _parts_as_text)
        if self.policy.how.channels_last:
            function = partial(first_channels_last, function or getattr(network, forward))
        if function is not None:
            shadows.put(network, forward, function)

    def _compile(self, network: torch.nn.Module) -> CompiledNetwork:
        how, weights = self.policy.how, WeightGuards(network)
        if self.blocks_share_code:
            return self._compiler.blocks(network, how, self.title, weights)
        forward = _given(getattr(network, _forward(network)), _parts_as_numbers)
        return self._compiler.function(forward, how, self.title, Sizes(text=2), weights)

    def _refusal(self, call: ModelCall, forward: str) -> str | None:
        options = call.transformer_options
        if is_compiled_by_others(options):
            return _FOREIGN
        if self.blocks_share_code:
            if self.policy.how.fullgraph and runs_python(options):
                return PATCHED
        elif replacement(call.model.diffusion_model, forward) is not None:
            return REPLACED
        return refusal(getattr(call.model, "current_patcher", None), call.model)


def _forward(network: torch.nn.Module) -> str:
    return "_forward" if hasattr(network, "_forward") else "forward"


def _given(function: Function, changed: Callable[[object], object]) -> Function:
    """Return a function that calls ``function`` with each of its arguments ``changed``."""

    def call(*args: object, **kwargs: object) -> object:
        return function(*[changed(value) for value in args], **{name: changed(value) for name, value in kwargs.items()})

    return call


def _parts_as_text(value: object) -> object:
    """Return an argument with the parts of the batch as a text, which compiled code takes as it is.

    torch takes numbers that have changed before as unknown: patches that look for the negative prompt would not see it.
    """
    if isinstance(value, dict) and isinstance(value.get(_PARTS), list):
        return {**value, _PARTS: " ".join(map(str, value[_PARTS]))}
    return value


def _parts_as_numbers(value: object) -> object:
    if type(value) is dict and isinstance(value.get(_PARTS), str):
        value = value.copy()
        value[_PARTS] = [int(part) for part in value[_PARTS].split()]
    return value
