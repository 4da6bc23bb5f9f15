"""A block of a network as compiled code sees it: the same at each place, with patches outside of the code.

torch compiles anew for each number and each function that code is given, so blocks share compiled code only if neither
their place (``block``, ``block_index``, ...) nor a patch is in it. The place is taken away, and each patch is replaced
by a function that leaves the compiled code (a graph break) and calls the patch with all that it would see without it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import MethodType
from typing import Any

import torch

from ...compilation.progress import MEANT
from ...core.not_copied import Args, Function, Kwargs
from ...core.shadow import Shadows, put_back, replacement
from ..run.attention_chain import runs_outside
from ..run.comfy_technique import ModelCall
from ..run.sampling_run import KEY
from ..structure.attention_owner import SLOT
from ..structure.protocols import Options
from .comfy_env import REPLACED

_PLACE = ("block", "block_index", "transformer_index", "block_type", "total_blocks")
"""Where a block stands; only patches read them, and blocks of UNets, to look for their own patches."""

_OF_THE_RUN = ("sample_sigmas", "uuids", "cond_or_uncond", "wrappers", "callbacks", "easycache")
"""Other options that no block reads: where compiled code is left, torch would guard each of their values."""

_BETWEEN = {
    "emb_patch", "forward_timestep_embed_patch", "post_input", "noise_refiner", "double_block", "input_block_patch",
    "input_block_patch_after_skip", "middle_block_after_patch", "output_block_patch",
}  # fmt: skip
"""Names of patches that a network runs between its blocks (FreeU, union ControlNets): blocks are the same with them."""

_PATCHES, _REPLACE, _SOME_BLOCK = "patches", "patches_replace", ("", 0)
_LEFT_OUT = {*_PLACE, *_OF_THE_RUN, _REPLACE}
_OWN = "_paceline_own_forward"

PATCHED = (
    "a patch, of another node or of Apply ToMe, runs inside of this block, which fullgraph does not allow; "
    "switch fullgraph off"
)

_running = threading.local()
"""``options``: what the block that runs on this thread was given."""


class BlocksAlike:
    """The blocks of one call of a network: hands each of them to code that does not know its place."""

    def __init__(self, call: ModelCall) -> None:
        self._call, self._part = call, call.part()
        self._outside: tuple[object, Options] = (None, {})
        call.count_on()
        call.cleanup.callback(self._part.forget)  # what torch keeps of its tracing holds the part, and that the model

    @contextmanager
    def alike(self, kwargs: Kwargs) -> Iterator[Kwargs]:
        """Give the arguments with which compiled code is called in the place of a block's."""
        options = kwargs.get("transformer_options")
        if not isinstance(options, dict) or KEY not in options:
            yield kwargs
            return
        before = getattr(_running, "options", None)
        _running.options = options
        self._part.count_on()
        try:
            yield {**kwargs, "transformer_options": self._without_place(options)}
        finally:
            _running.options = before
            self._call.count_on()
            self._call.take(self._part)

    def _without_place(self, options: Options) -> Options:
        seen = {name: value for name, value in options.items() if name not in _LEFT_OUT}
        seen[KEY] = self._part
        patches = options.get(_PATCHES)
        if self._outside[0] is not patches:
            inside = _inside(options)
            named = {name: [_outside(name, i) for i in range(len(each))] for name, each in inside.items()}
            self._outside = patches, _in_order(named)
        seen[_PATCHES] = self._outside[1]
        if SLOT in seen and runs_outside(options):
            seen[SLOT] = _attention
        names = [name for name in options.get(_REPLACE, ()) if _found(options, name)]
        replaced = {name: {(*_SOME_BLOCK, 0): _outside(name)} for name in names}
        if replaced:
            seen |= {_REPLACE: replaced, "block": _SOME_BLOCK, "block_index": 0}
        return _in_order(seen)


def _in_order(given: Options) -> Options:
    """Return a dictionary whose order, which torch guards, does not tell in which order nodes have written it."""
    return {name: given[name] for name in sorted(given, key=str)}


def runs_python(options: Options) -> bool:
    """Return whether other code runs inside of the blocks of a call with these ``transformer_options``."""
    return bool(_inside(options) or options.get(_REPLACE)) or (SLOT in options and runs_outside(options))


def _inside(options: Options) -> Options:
    """Return the patches that run inside of blocks, by their names."""
    return {name: each for name, each in (options.get(_PATCHES) or {}).items() if name not in _BETWEEN}


def why_uncompiled(block: torch.nn.Module, fullgraph: bool, shadows: Shadows) -> str:
    """Return why a block must run uncompiled; "" if it need not.

    Layers inside of it whose ``forward`` other code has replaced then leave the compiled code, until ``shadows`` are
    undone. What techniques of ours have put there is a method that is traced as the layer's own.
    """
    if replacement(block) is not None:
        return REPLACED
    for layer in block.modules():
        own = replacement(layer)
        if own is None or _is_traced(own):
            continue
        if fullgraph:
            return PATCHED
        shadows.put_all(layer, {"forward": MethodType(_layer, layer), _OWN: own})
    return ""


def _is_traced(forward: Any) -> bool:
    module = getattr(getattr(forward, "__func__", None), "__module__", None) or ""
    return module.startswith(__name__.partition(".")[0] + ".")


def _found(options: Options, name: str) -> Function | None:
    """Return the stand-in for attention ``name`` of the block that was given ``options``; None for nothing."""
    table, block = options[_REPLACE].get(name) or {}, options.get("block")
    if block is None or not isinstance(table, Mapping):
        return None
    return table.get((block[0], block[1], options.get("block_index", 0))) or table.get(block)


@contextmanager
def _as_without_us(args: Args, kwargs: Kwargs) -> Iterator[Options]:
    """Put into the dictionaries of a patch what the block was given; what the patch puts there itself stays."""
    options, put = _running.options, []
    for given in (*args, *kwargs.values()):
        if not isinstance(given, dict):
            continue
        if KEY in given:
            real = {name: value for name, value in options.items() if name in given or name not in (_PATCHES, _REPLACE)}
        elif "transformer_options" in given:
            real = {"transformer_options": options}
        else:
            continue
        put.append((given, real, {name: given[name] for name in real if name in given}))
        given.update(real)
    try:
        yield options
    finally:
        for each in put:
            put_back(*each)


@cache
def _outside(name: str, index: int | None = None) -> Function:
    """Return the stand-in for a patch, by its place in the list of its name; without one, for a replaced attention."""

    def patch(*args: object, **kwargs: object) -> Any:
        with _as_without_us(args, kwargs) as options:
            function = _found(options, name) if index is None else options[_PATCHES][name][index]
            assert function is not None, "the block was given a replacement because there is one"
            return function(*args, **kwargs)

    outside: Function = torch.compiler.disable(patch, reason=MEANT)
    return outside


@torch.compiler.disable(reason=MEANT)  # type: ignore[untyped-decorator]
def _attention(func: Function, *args: object, **kwargs: object) -> Any:
    return _running.options[SLOT](func, *args, **{**kwargs, "transformer_options": _running.options})


@torch.compiler.disable(reason=MEANT)  # type: ignore[untyped-decorator]
def _layer(layer: torch.nn.Module, *args: object, **kwargs: object) -> Any:
    with _as_without_us(args, kwargs):
        return layer.__dict__[_OWN](*args, **kwargs)
