"""What compiles for a host: makes compiled functions, and keeps them for as long as their network lives."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import asdict
from weakref import WeakKeyDictionary

import torch

from ...core.calls import Function
from .artifacts import ArtifactStore
from .compiled import CompiledFunction
from .network import CompiledNetwork, Refine
from .progress import Observer
from .recorded_network import RecordedNetwork
from .settings import NetworkSettings
from .sizes import Sizes
from .weights import WeightGuards, structure


class Compiler:
    """Compiles; a host that keeps code on disk and shows progress derives from it."""

    def __init__(self) -> None:
        self._networks: WeakKeyDictionary[object, dict[Hashable, CompiledNetwork]] = WeakKeyDictionary()

    def store(self) -> ArtifactStore | None:
        """Return where compiled code is kept for the next start; None keeps it where torch does."""
        return None

    def observer(self, node_id: str | None) -> Observer | None:
        """Return what watches the compilations of a node; None for nobody."""
        return None

    def once(self, owner: object, key: Hashable, make: Callable[[], CompiledNetwork]) -> CompiledNetwork:
        """Return what was made for a live object under ``key``, made when it is asked for the first time.

        All clones of a model share their live object, so that applying another LoRA or prompt compiles nothing.

        Args:
            owner: is not kept alive, so what is made must not hold it.
            key: what else the result depends on: the settings.
            make: makes it.
        """
        made = self._networks.setdefault(owner, {})
        if key not in made:
            made[key] = make()
        return made[key]

    def function(
        self,
        function: Function,
        network: torch.nn.Module,
        settings: NetworkSettings,
        name: str,
        *,
        method: str = "",
        text: int | None = None,
        guard_weights: bool = False,
    ) -> CompiledFunction:
        """Return a function of a network, compiled.

        Args:
            function: what to compile.
            network: that the function belongs to.
            settings: how to compile.
            name: what a person calls it.
            method: which of the network's methods it is, if there are several.
            text: position of the text among the arguments, if it has no name.
            guard_weights: whether the function holds the network, whose weights are then guarded as a whole.
        """
        store, artifacts = self.store(), None
        if store is not None:
            about = {**structure(network), **({"method": method} if method else {}), **asdict(settings)}
            artifacts = store.folder(about, str(next(network.parameters()).device))
        return CompiledFunction(
            function,
            settings.compilation,
            name=name,
            artifacts=artifacts,
            weights=WeightGuards(network) if guard_weights else None,
            sizes=Sizes(text),
        )

    def recorded(self, network: torch.nn.Module, function: CompiledFunction, refine: Refine) -> RecordedNetwork | None:
        """Return a network whose compiled steps are recorded and replayed; None where nothing can be recorded."""
        return RecordedNetwork(network, function, refine) if next(network.parameters()).is_cuda else None
