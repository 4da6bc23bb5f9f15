"""One network and the parts of it that are compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch

from .....core.errors import require_choice
from .....core.memory_format import channels_last
from ....compilation import CUDA_GRAPH, ArtifactFolder, CompiledFunction, CompileSettings, WeightGuards
from ....compilation.sizes import expect_changes, no_equal_sizes
from .prepare import structure
from .recording import RecordedNetwork
from .surroundings import artifact_store

SCOPES = ("whole_model", "repeated_blocks")

# Where a block stands. Torch compiles anew for each value of a number that a block is given, so blocks only share
# compiled code without these; only patches read them.
_PLACE = ("block", "block_index", "transformer_index", "block_type", "total_blocks")


@dataclass(frozen=True)
class NetworkSettings:
    """How to compile a network.

    Attributes:
        compilation: how to compile a function.
        scope: ``whole_model``, or ``repeated_blocks``: one block of each class, used for all of its repetitions.
        channels_last: whether the latent is handed over with its channels last in memory.

    Raises:
        InvalidSetting: if the scope is unknown.
    """

    compilation: CompileSettings
    scope: str = "whole_model"
    channels_last: bool = False

    def __post_init__(self) -> None:
        """Check the scope."""
        require_choice("scope", self.scope, SCOPES)


class CompiledNetwork:
    """A network's functions that run compiled, and where they go on the live network.

    Compiled is ``_forward`` where the network has it, else ``forward``: wrappers around the network (EasyCache,
    hooks of other packs), which choose in Python whether it runs at all, then stay outside.

    Args:
        network: the live ``diffusion_model``.
        settings: how to compile it.
        device: that it runs on.
        name: what a person calls it.

    Attributes:
        functions: what is compiled.
        places: (module, attribute, replacement) for each place on the network.
        recorded: the recordings of mode ``cuda-graph``.
    """

    def __init__(self, network: Any, settings: NetworkSettings, device: str, name: str) -> None:
        self.settings = settings
        self.functions: list[CompiledFunction] = []
        self.places: list[tuple[Any, str, Callable[..., Any]]] = []
        self.recorded: RecordedNetwork | None = None
        self._sizes: set[tuple[int, ...]] = set()
        artifacts = _artifacts(network, settings, device)

        def compiled(function: Callable[..., Any], what: str, weights: WeightGuards | None = None) -> CompiledFunction:
            made = CompiledFunction(function, settings.compilation, name=what, artifacts=artifacts, weights=weights)
            self.functions.append(made)
            return made

        if settings.scope == "whole_model":
            attribute = "_forward" if hasattr(network, "_forward") else "forward"
            function: Callable[..., Any] = compiled(getattr(network, attribute), name, WeightGuards(network))
            if settings.compilation.mode == CUDA_GRAPH and torch.device(device).type == "cuda":
                function = self.recorded = RecordedNetwork(network, function)
            self.places.append((network, attribute, lambda *args, **kwargs: self._run(function, args, kwargs)))
            return
        by_class: dict[type, CompiledFunction] = {}
        for block in repeated_blocks(network):
            kind = type(block)
            if kind not in by_class:
                by_class[kind] = compiled(kind.forward, f"{name}: {kind.__name__}")
            self.places.append((block, "forward", _block_runner(by_class[kind], block)))

    def _run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the whole network; arguments as its ``_forward`` takes them: latent, timestep, text, ..."""
        settings = self.settings
        if settings.channels_last:
            args = (channels_last(args[0]), *args[1:])
        if settings.compilation.dynamic == "false":
            return function(*args, **kwargs)
        size = tuple(args[0].shape) if isinstance(args[0], torch.Tensor) else ()
        changes = bool(self._sizes) and size not in self._sizes
        args, kwargs = _mark(args, kwargs, every_size=changes)
        # Sizes that change are compiled as variables. A square image must not make two of them the same variable.
        with nullcontext() if size in self._sizes else no_equal_sizes():
            result = function(*args, **kwargs)
        self._sizes.add(size)
        return result


def compiled_network(model: Any, settings: NetworkSettings, name: str) -> CompiledNetwork:
    """Return the compiled network of a live ``BaseModel``, made when it is asked for the first time.

    All clones of a model share it, so that applying another LoRA or prompt compiles nothing.
    """
    networks = _networks.setdefault(model, {})
    if settings not in networks:
        device = str(next(model.diffusion_model.parameters()).device)
        networks[settings] = CompiledNetwork(model.diffusion_model, settings, device, name)
    return networks[settings]


_networks: WeakKeyDictionary[Any, dict[NetworkSettings, CompiledNetwork]] = WeakKeyDictionary()


def repeated_blocks(network: Any) -> list[Any]:
    """Return the modules whose class is in a network's ``ModuleList`` s more than once.

    For UNets these are the transformer blocks, for diffusion transformers their blocks. Containers do not count, nor
    blocks inside of such blocks.
    """
    lists = [module for module in network.modules() if isinstance(module, torch.nn.ModuleList)]
    children = [child for one in lists for child in one if not isinstance(child, torch.nn.Sequential)]
    counts = Counter(type(child) for child in children)
    blocks = [child for child in children if counts[type(child)] > 1]
    inner = {id(module) for block in blocks for module in block.modules() if module is not block}
    return [block for block in blocks if id(block) not in inner]


def _block_runner(function: CompiledFunction, block: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        options = kwargs.get("transformer_options")
        if options:
            kwargs["transformer_options"] = {name: value for name, value in options.items() if name not in _PLACE}
        return function(block, *args, **kwargs)

    return run


def _artifacts(network: Any, settings: NetworkSettings, device: str) -> ArtifactFolder | None:
    store = artifact_store()
    return None if store is None else store.folder({**structure(network), **asdict(settings)}, device)


def _mark(args: tuple[Any, ...], kwargs: dict[str, Any], every_size: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Tell torch which sizes of latent, timestep and text to expect changes in.

    The number of text tokens always: the next prompt must not compile anything. When the latent is seen in a second
    size, its sides and the batch together: one more graph then serves all of them.
    """
    latent, timestep, text = 0, 1, 2
    marked = list(args)
    dimensions = {text: (0, 1), latent: (0, 2, 3), timestep: (0,)} if every_size else {text: (1,)}
    for position, changing in dimensions.items():
        if position < len(marked):
            marked[position] = expect_changes(marked[position], *changing)
    if len(args) <= text and "context" in kwargs:
        kwargs = {**kwargs, "context": expect_changes(kwargs["context"], *dimensions[text])}
    return tuple(marked), kwargs
