"""A MODEL whose compiled network does nothing: what is left of a step is the processor's time for everything around it.

Nothing is compiled and nothing recorded. In the place of what torch would call stands a function that returns its first
argument, and in the place of a CUDA graph one that launches nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

NODE = "Compile UNet: our part of a call"
REPLAY = "Compile UNet cuda-graph: our part of a replay"
PLAIN = "a network that does nothing"


class Empty:
    """A recording of nothing."""

    held_bytes = 0

    def __init__(self, run: Callable[[], Any], device: torch.device) -> None:
        self.output = run()

    def replay(self) -> None:
        """Launch nothing."""


def models(model: Any) -> dict[str, Any]:
    """Return clones of a MODEL that compile, and record, a network that does nothing."""
    from paceline.core.technique import attach
    from paceline.optimizers.compilation.compiler import Compiler
    from paceline.optimizers.compilation.recorded_network import RecordedNetwork
    from paceline.optimizers.compilation.settings import CUDA_GRAPH, CompileSettings, NetworkSettings
    from paceline.optimizers.hosts.comfyui.compilation.unet import CompileUNet
    from paceline.optimizers.hosts.comfyui.model import ModelTarget

    class Nothing(Compiler):
        def function(self, *args: Any, **options: Any) -> Any:
            made = super().function(*args, **options)

            def nothing(key: str, latent: torch.Tensor, *rest: object, **more: object) -> torch.Tensor:
                made._backend.runs += 1
                return latent

            made._compiled = nothing
            return made

        def recorded(self, network: Any, function: Any, refine: Any) -> RecordedNetwork:
            return RecordedNetwork(network, function, refine, Empty)

    def compiled(mode: str) -> Any:
        how = NetworkSettings(CompileSettings(backend="eager", mode=mode))
        return attach(ModelTarget(model), CompileUNet(model, how, Nothing()))

    return {NODE: compiled("default"), REPLAY: compiled(CUDA_GRAPH)}


def plain_step(model: Any, step: Callable[[], Any]) -> Callable[[], Any]:
    """Return ``step`` with a network that does nothing, for its duration."""
    network = model.model.diffusion_model

    def run() -> Any:
        network._forward = lambda latent, *args, **kwargs: latent
        try:
            return step()
        finally:
            del network._forward

    return run


def python_calls(step: Callable[[], Any]) -> int:
    """Return how many Python functions one call of ``step`` enters: the same however busy the machine is."""
    entered = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal entered
        entered += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(before)
    return entered
