"""Two prompts in a row while ComfyUI's own compiler takes back the memory of each evaluation."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from allocation_graph import AllocationGraph
from approximating import EXACT, approximate
from paceline.optimizers import guard as guards
from reusing import reuse

MERGE = {"method": "merge", "ratio": 0.5, "max_downsample": "2"}
KEYS = {"method": "kv_downsample", "ratio": 0.75, "max_downsample": "2"}
STEPS = 12


def guarded(studio, model):
    """Return a MODEL with approximate attention, whose layers are compared in the first evaluation of each run."""
    return approximate(studio, lambda inputs: EXACT(inputs), model)


MODELS = {
    "Reuse Steps": lambda studio, quantize: reuse(studio, studio.model, 0.3),
    "Apply ToMe, keys": lambda studio, quantize: studio.tome(studio.model, **KEYS, residual="auto"),
    "Apply ToMe, merging": lambda studio, quantize: studio.tome(studio.model, **MERGE, residual="auto"),
    "the guard": lambda studio, quantize: guarded(studio, studio.model),
    "int8": lambda studio, quantize: quantize(studio.model),
    "all together": lambda studio, quantize: reuse(
        studio, guarded(studio, studio.tome(quantize(studio.model), **KEYS, residual="auto")), 0.3
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_nothing_of_an_evaluation_is_kept_and_both_prompts_draw_as_without_the_compiler(
    studio, quantize, monkeypatch, name
):
    model = MODELS[name](studio, quantize)
    guards._known.clear()
    expected = studio.sample(model, steps=STEPS)
    graph = AllocationGraph()
    with graph.around(model.model.diffusion_model, monkeypatch):
        drawn = [studio.sample(model, steps=STEPS) for _ in range(2)]
    assert graph.evaluations > 0
    assert graph.kept == []
    for one in drawn:
        assert torch.equal(one, expected)


def test_without_leaving_the_graph_a_kept_difference_would_be_of_it(studio, monkeypatch):
    model = studio.tome(studio.model, **KEYS, residual="auto")
    graph = AllocationGraph()
    monkeypatch.setattr(graph, "pause", nullcontext)
    with graph.around(model.model.diffusion_model, monkeypatch):
        studio.sample(model, steps=STEPS)
    assert graph.kept
