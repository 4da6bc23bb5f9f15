"""Our hooks inside of a compiled network: one graph for all steps, the same image, and counts that stay true.

The backend is ``eager``: it traces, guards and recompiles as any other, and only leaves out the code generation.
"""

from __future__ import annotations

import pytest
import torch
import torch._dynamo
from torch._dynamo.utils import counters


@pytest.fixture
def compile_with_core(studio):
    """ComfyUI's own way to compile a model, as its TorchCompileModel node does it."""
    from comfy_api.torch_helpers import set_torch_compile_wrapper

    torch._dynamo.reset()
    counters.clear()

    def compiled(model):
        clone = model.clone()
        set_torch_compile_wrapper(model=clone, backend="eager")
        return clone

    yield compiled
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("settings", "graphs"),
    [
        ({"method": "merge"}, 1),
        ({"method": "local_merge"}, 1),
        ({"method": "kv_downsample", "ratio": 0.75}, 1),
        ({"preset": "balanced"}, 1),
        # Outside of its part of the schedule the node is not there: that is a second graph, and no third.
        ({"method": "kv_downsample", "start_percent": 0.3}, 2),
    ],
    ids=["merge", "local_merge", "kv_downsample", "balanced", "window"],
)
def test_one_graph_serves_all_steps(studio, compile_with_core, settings, graphs):
    model = studio.tome(studio.model, **settings)
    expected = studio.sample(model, steps=8)
    found = studio.sample(compile_with_core(model), steps=8)
    assert torch.equal(found, expected)
    assert counters["stats"]["unique_graphs"] == graphs
    assert not counters["graph_break"]
    assert "0 fallbacks" in studio.report(model)


def test_the_attention_backend_is_traced_too(studio, compile_with_core):
    model = studio.attention(studio.tome(studio.model), "sub_quadratic")
    expected = studio.sample(model)
    found = studio.sample(compile_with_core(model))
    torch.testing.assert_close(found, expected)
    assert not counters["graph_break"]
    assert "sub_quadratic in 28 attention calls; 0 fallbacks" in studio.report(model)
