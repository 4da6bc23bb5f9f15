"""What compiles for a host, and what of a network is compiled: the whole, one of its methods, its repeated blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

import torch

from ..core.not_copied import Function, Kwargs
from ..core.phrases import phrase
from .cache_folder import CacheFolder
from .changing import BlockSizes, Sizes, WeightGuards
from .compile_settings import CompileSettings
from .compiled import CompiledFunction
from .progress import Watcher

BLOCK_CALL = "_compiled_call_impl"
"""The attribute through which ``torch.nn.Module`` runs in place of its own call, hooks and all."""

Alike = Callable[[Kwargs], AbstractContextManager[Kwargs]]


class CompiledNetwork:
    """What is compiled of one network: one function for the whole or a method, or one for each kind of its blocks."""

    def __init__(self, *functions: CompiledFunction, blocks: Mapping[Any, CompiledFunction] = MappingProxyType({})):
        self.functions = functions
        self._blocks = WeakKeyDictionary(blocks)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.functions[0](*args, **kwargs)

    def call_of(self, block: torch.nn.Module, alike: Alike = nullcontext) -> Function:
        """Return the ``BLOCK_CALL`` of one of the blocks.

        ``alike``: given the block's named arguments, gives those with which the code is the same for all blocks.
        """
        return partial(_run_block, self._blocks[block], alike, block)


class Compiler:
    """Compiles each thing once.

    Args:
        cache: returns where compiled code is kept for the next start; None keeps it where torch does.
        observer: returns what watches the compilations of the node with that id.
    """

    def __init__(
        self,
        cache: Callable[[], CacheFolder | None] = lambda: None,
        observer: Callable[[str | None], Watcher | None] = lambda node_id: None,
    ) -> None:
        self.cache, self.observer = cache, observer
        self._networks: WeakKeyDictionary[object, dict[Hashable, CompiledNetwork]] = WeakKeyDictionary()

    def function(
        self, function: Function, how: CompileSettings, name: str, sizes: Sizes, weights: WeightGuards | None = None
    ) -> CompiledNetwork:
        """Return a network that is compiled as one function, see `CompiledFunction`."""
        return CompiledNetwork(
            CompiledFunction(function, how, name=name, cache=self.cache(), weights=weights, sizes=sizes)
        )

    def blocks(
        self, network: torch.nn.Module, how: CompileSettings, name: str, weights: WeightGuards | None = None
    ) -> CompiledNetwork:
        """Return the repeated blocks of a network, which is not kept: those of one kind share their compiled code.

        A kind is a class with weights of certain sizes. Where it is in lists of several names (Z-Image's refiners and
        layers), it is called with several sizes at once. ``weights``: of the network, to be guarded as suits ComfyUI.
        """
        lists = {module: path.split(".")[-2:-1] for path, module in network.named_modules()}
        kinds: dict[tuple[type, object], list[torch.nn.Module]] = {}
        for block in repeated_blocks(network):
            kinds.setdefault(block_kind(block), []).append(block)
        functions: dict[torch.nn.Module, CompiledFunction] = {}
        for kind, blocks in kinds.items():
            sizes = BlockSizes(several=any(lists[block] != lists[blocks[0]] for block in blocks))
            more: dict[str, Any] = {"cache": self.cache(), "weights": weights, "sizes": sizes, "keeps_lists": True}
            function = CompiledFunction(_call_block, how, name=f"{name}: {kind[0].__name__}", **more)
            functions |= dict.fromkeys(blocks, function)
        return CompiledNetwork(*dict.fromkeys(functions.values()), blocks=functions)

    def once(self, owner: object, key: Hashable, make: Callable[[], CompiledNetwork]) -> CompiledNetwork:
        """Return the result of ``make`` for a live object under ``key`` (the settings).

        All clones of a model share their live object, so that another LoRA or prompt compiles nothing. ``owner`` is not
        kept alive, so what is made must not hold it.
        """
        made = self._networks.setdefault(owner, {})
        if key not in made:
            made[key] = make()
        return made[key]


def _run_block(function: Function, alike: Alike, block: torch.nn.Module, *args: object, **kwargs: object) -> Any:
    with alike(kwargs) as named:
        return function(block, *args, **named)


def block_kind(block: torch.nn.Module) -> tuple[type, tuple[torch.Size, ...]]:
    """Return the key of blocks that share compiled code."""
    return type(block), tuple(weight.shape for weight in block.parameters())


def _call_block(block: torch.nn.Module, *args: object, **kwargs: object) -> Any:
    return block._call_impl(*args, **kwargs)


def repeated_blocks(network: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the modules that a network repeats: those whose class it names itself, as diffusers' models do.

    Of other networks, those whose class is in their ``ModuleList`` s more than once: transformer blocks. Containers do
    not count, nor blocks inside of such blocks.
    """
    named = getattr(network, "_repeated_blocks", None)
    if named:
        return [module for module in network.modules() if type(module).__name__ in named]
    lists = [module for module in network.modules() if isinstance(module, torch.nn.ModuleList)]
    children = [child for one in lists for child in one if not _only_holds(child)]
    counts = Counter(type(child) for child in children)
    blocks = [child for child in children if counts[type(child)] > 1]
    inner = {id(module) for block in blocks for module in block.modules() if module is not block}
    return [block for block in blocks if id(block) not in inner]


def _only_holds(module: torch.nn.Module) -> bool:
    """Return whether a module is a container: it is never called, or calls what is in it and computes nothing."""
    return isinstance(module, torch.nn.Sequential) or type(module).forward is torch.nn.Module.forward


def describe_blocks(network: torch.nn.Module) -> str:
    """Return e.g. ``2 kinds of block, 70 places``; empty if nothing repeats."""
    blocks = repeated_blocks(network)
    if not blocks:
        return ""
    kinds = len(set(map(block_kind, blocks)))
    return phrase("{kinds} {kinds|kind|kinds} of block, {places} places", kinds=kinds, places=len(blocks))
