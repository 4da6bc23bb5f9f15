"""One live network and what of it is compiled: the whole, one of its methods, or its repeated blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from ...core.activity import Activity
    from ...core.calls import Args, Function, Kwargs
    from .compiled import CompiledFunction
    from .compiler import Compiler
    from .recorded_network import RecordedNetwork
    from .settings import NetworkSettings

BLOCK_CALL = "_compiled_call_impl"
"""The attribute through which ``torch.nn.Module`` runs in place of its own call, hooks and all."""


@dataclass(frozen=True)
class Refined:
    """One call of a network, as it is recorded.

    Attributes:
        args, kwargs: what the network reads of its arguments.
        techniques: stands for the hooks that run inside: other ones are another recording.
        activities: into which those hooks count.
        restore: puts back, into the arguments that a recording runs with, what is not part of its key.
    """

    args: Args
    kwargs: Kwargs
    techniques: Hashable = ()
    activities: Mapping[str, Activity] = field(default_factory=dict)
    restore: Callable[[Args, Kwargs], tuple[Args, Kwargs]] = lambda args, kwargs: (args, kwargs)


Refine = Callable[["Args", "Kwargs"], "str | Refined"]
"""Returns what of a call is recorded, or why it cannot be."""


class CompiledNetwork:
    """What is compiled of one network.

    Attributes:
        functions: what is compiled: one function for a whole network or method, one for each class of its blocks.
        recorded: the recordings of mode ``cuda-graph``.
    """

    def __init__(self, *functions: CompiledFunction, recorded: RecordedNetwork | None = None) -> None:
        self.functions = functions
        self.recorded = recorded

    def weights_are(self, version: Hashable) -> None:
        """Note which version of the weights is in place: nothing is looked at again while it stays the same."""
        for function in self.functions:
            if function.weights is not None:
                function.weights.version = version
        if self.recorded is not None:
            self.recorded.version = version

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the whole network or method."""
        return (self.recorded or self.functions[0])(*args, **kwargs)


class CompiledBlocks(CompiledNetwork):
    """The repeated blocks of one network: those of one class share their compiled code.

    Args:
        network: the live network; not kept.
        settings: how to compile.
        name: what a person calls it.
        compiler: makes the compiled functions.
        refine: given a block's named arguments, returns those that all blocks share.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        settings: NetworkSettings,
        name: str,
        compiler: Compiler,
        refine: Callable[[Kwargs], Kwargs] = lambda kwargs: kwargs,
    ) -> None:
        self._refine = refine
        classes = dict.fromkeys(type(block) for block in repeated_blocks(network))
        self._by_class = {
            kind: compiler.function(_call_block, network, settings, f"{name}: {kind.__name__}") for kind in classes
        }
        super().__init__(*self._by_class.values())

    def places(self, network: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, Function]]:
        """Yield each block, and what is to run as its ``BLOCK_CALL``."""
        for block in repeated_blocks(network):
            yield block, partial(self._run, self._by_class[type(block)], block)

    def _run(self, function: CompiledFunction, block: torch.nn.Module, *args: object, **kwargs: object) -> Any:
        return function(block, *args, **self._refine(kwargs))


def _call_block(block: torch.nn.Module, *args: object, **kwargs: object) -> Any:
    return block._call_impl(*args, **kwargs)


def repeated_blocks(network: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the modules that a network repeats: those whose class it names itself, as diffusers' models do.

    Of other networks, those whose class is in their ``ModuleList`` s more than once. For UNets these are the
    transformer blocks, for diffusion transformers their blocks. Containers do not count, nor blocks inside of such
    blocks.
    """
    named = getattr(network, "_repeated_blocks", None)
    if named:
        return [module for module in network.modules() if type(module).__name__ in named]
    lists = [module for module in network.modules() if isinstance(module, torch.nn.ModuleList)]
    children = [child for one in lists for child in one if not isinstance(child, torch.nn.Sequential)]
    counts = Counter(type(child) for child in children)
    blocks = [child for child in children if counts[type(child)] > 1]
    inner = {id(module) for block in blocks for module in block.modules() if module is not block}
    return [block for block in blocks if id(block) not in inner]


def describe_blocks(network: torch.nn.Module) -> str:
    """Return e.g. ``7 x BasicTransformerBlock``; empty if nothing repeats."""
    counts = Counter(type(block).__name__ for block in repeated_blocks(network))
    return " and ".join(f"{count} x {name}" for name, count in counts.items())
