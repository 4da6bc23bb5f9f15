"""A compiled function: what it hands on to torch, and whose memory its results are in."""

from __future__ import annotations

import pytest
import torch
from paceline.optimizers.compilation import settings
from paceline.optimizers.compilation.compiled import CompiledFunction
from paceline.optimizers.compilation.settings import CompileSettings

pytestmark = pytest.mark.usefixtures("fresh_compiler")


def replayed(graph, inputs):
    """A backend whose graph writes each result into the same memory, as a CUDA graph does."""
    memory = torch.zeros(3)

    def run(*args):
        memory.copy_(graph(*args)[0])
        return (memory,)

    return run


@pytest.mark.parametrize(
    ("mode", "refusal", "overwritten"),
    [
        ("reduce-overhead", None, False),
        ("default", None, True),  # torch uses no CUDA graphs then, and a copy would be for nothing
        ("reduce-overhead", "there is no GPU", True),
    ],
)
def test_results_of_a_cuda_graph_stay_as_they_were_when_it_runs_again(monkeypatch, mode, refusal, overwritten):
    monkeypatch.setattr(settings, "cudagraph_trees_refusal", lambda: refusal)
    function = CompiledFunction(lambda x: x * 2, CompileSettings(mode=mode), backend=replayed)
    first = function(torch.ones(3))
    second = function(torch.full((3,), 5.0))
    assert second.tolist() == [10.0] * 3
    assert first.tolist() == ([10.0] * 3 if overwritten else [2.0] * 3)
