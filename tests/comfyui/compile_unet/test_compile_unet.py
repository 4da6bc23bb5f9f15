"""Compile UNet gives what the model gives without it, whatever is added, changed or removed after compiling.

The backend is ``eager`` where nothing else is said: it traces, guards and recompiles as any other, and only leaves
out the code generation, so results are equal bit for bit.
"""

from functools import partial

import model_changes as changes
import pytest
import torch
import torch._dynamo
from cases import often
from comfy_host import checkpoints, in_process
from compiled_models import state, with_model_of_its_own


def test_it_gives_the_same_image_and_says_what_it_did(small, compiled, small_baseline):
    model = compiled(small.model)
    assert torch.equal(small.sample(model), small_baseline)
    report = small.report(model)
    assert "compiled whole model: 1 graph, 0 recompiles" in report
    assert "compiled calls: 2\n" in report
    again = compiled(small.model)  # the node run again finds what was compiled
    small.sample(again)
    assert state(again).graphs == 1


@pytest.mark.thorough
@pytest.mark.parametrize("scope", ["auto", "whole_model"])
@pytest.mark.parametrize("name", changes.MODEL_CHANGES)
def test_a_change_of_the_model_takes_effect_and_leaves_again(studio, compiled, core_node, name, scope):
    compiled = partial(compiled, scope=scope)
    change = changes.MODEL_CHANGES[name]
    levels = 2 if name in changes.NEED_LEVELS else 1
    studio = with_model_of_its_own(studio, checkpoints.smallest_unet(levels=levels))
    expected = studio.sample(change(studio, core_node, studio.model), steps=4)
    untouched = studio.sample(studio.model, steps=4)
    model = compiled(studio.model)
    assert torch.equal(studio.sample(model, steps=4), untouched)
    after = studio.sample(change(studio, core_node, model), steps=4)
    before = studio.sample(compiled(change(studio, core_node, studio.model)), steps=4)
    assert torch.equal(after, expected)
    assert torch.equal(before, expected)
    assert not torch.equal(expected, untouched)
    assert torch.equal(studio.sample(model, steps=4), untouched)
    assert not state(model).eager_calls


def test_prompts_cost_nothing_and_sizes_at_most_one_graph(small, compiled):
    model = compiled(small.model)
    small.sample(model, size=(24, 24))
    for tokens in (154, 231, 77):
        small.sample(model, size=(24, 24), positive=in_process.random_conditioning(small.model, tokens, seed=tokens))
    assert (state(model).graphs, state(model).recompiles) == (1, 0)
    for size in ((32, 32), (24, 32), (40, 24)):  # the first of them: one graph for any size
        small.sample(model, size=size)
    assert state(model).recompiles == 1
    (reason,) = state(model).recompile_reasons
    assert f"compiled again for {reason}" in small.report(model) and reason.startswith("another size (torch: tensor ")
    small.sample(model, size=(24, 24), cfg=1.0)
    assert state(model).recompiles == 2
    small.sample(model, size=(24, 24), batch=3)
    recompiles = state(model).recompiles
    assert recompiles <= 3
    small.sample(model, size=(24, 24))
    assert state(model).recompiles == recompiles
    assert not state(model).eager_calls
    assert f"{recompiles} recompiles" in small.report(model)


@pytest.mark.parametrize(
    ("backend", "sizes"), often([("eager", ())], [("eager", ()), ("aot_eager", ((32, 24), (40, 24)))], several=True)
)
def test_a_kept_difference_is_one_graph_more_and_never_another(studio, compiled, backend, sizes):
    """One for steps in which attention is computed both ways, one for those in which the difference is added."""
    studio = with_model_of_its_own(studio, checkpoints.smallest_unet(levels=2))
    settings = {"method": "kv_downsample", "ratio": 0.75, "max_downsample": "2", "residual": "auto"}
    tome = studio.tome(studio.model, **settings)
    model, expected = compiled(tome, backend=backend), studio.sample(tome, steps=8)
    for _ in range(2):
        assert torch.equal(studio.sample(model, steps=8), expected)
    assert state(model).graphs == 2
    report = studio.report(model)
    assert "residual: 3 of 8 model calls computed attention both ways" in report and "left out" not in report
    assert "full and reduced attention in the same step, or no longer (Apply ToMe)" in report
    for size in sizes:  # two graphs for any size
        assert torch.equal(studio.sample(model, steps=8, size=size), studio.sample(tome, steps=8, size=size))
    assert state(model).graphs == (4 if sizes else 2) and not state(model).eager_calls
