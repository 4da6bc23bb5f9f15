"""Our hooks inside of a compiled network: one graph for all steps, the same image, and counts that stay true.

The backend is ``eager``: it traces, guards and recompiles as any other, and only leaves out the code generation.
"""

from __future__ import annotations

import pytest
import torch
import torch._dynamo
from torch._dynamo.utils import counters


@pytest.fixture
def compile_with_core(studio, fresh_compiler):
    """ComfyUI's own way to compile a model, as its TorchCompileModel node does it."""
    from comfy_api.torch_helpers import set_torch_compile_wrapper

    counters.clear()

    def compiled(model):
        clone = model.clone()
        set_torch_compile_wrapper(model=clone, backend="eager")
        return clone

    return compiled


@pytest.mark.parametrize(
    ("settings", "graphs"),
    [
        ({"preset": "quality"}, 1),
        # Outside of its part of the schedule the node is not there: that is a second graph, and no third.
        ({"method": "merge", "start_percent": 0.2, "end_percent": 0.6}, 2),
    ],
    ids=["quality", "window"],
)
def test_steps_compile_nothing_twice(small, compile_with_core, settings, graphs):
    model = small.tome(small.model, **settings)
    compiled = compile_with_core(model)
    drawn = small.sample(compiled, steps=12)
    if "preset" not in settings:  # presets keep a difference, which compiled code cannot
        assert torch.equal(drawn, small.sample(model, steps=12))
    assert counters["stats"]["unique_graphs"] == graphs
    small.sample(compiled, steps=12)  # and nothing more in the next run
    assert counters["stats"]["unique_graphs"] == graphs
    assert not counters["graph_break"]
    assert "fallback" not in small.report(model)
