"""Compile UNet's mode cuda-graph where there is no GPU: a recording that runs the function again."""

from __future__ import annotations

import torch
from paceline.optimizers.compilation.compiler import Compiler
from paceline.optimizers.compilation.recorded_network import RecordedNetwork


class Replayable:
    """Runs the recorded function again on the tensors it was recorded with, and fails when it is told to."""

    out_of_memory = False

    held_bytes = 1000

    def __init__(self, run, device=None):
        self._run = run
        run()  # once more, as a real recording does
        self.output = run()

    def replay(self):
        if Replayable.out_of_memory:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.output.copy_(self._run())


class RecordingCompiler(Compiler):
    """Records on the CPU."""

    def recorded(self, network, function, refine):
        self.last = RecordedNetwork(network, function, refine, Replayable)
        return self.last
