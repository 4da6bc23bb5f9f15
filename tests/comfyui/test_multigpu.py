"""Beside ComfyUI's MultiGPU CFG Split: a network of its own for one of the passes, in a thread of its own."""

import pytest
import torch
from comfy_host import checkpoints
from compiled_models import with_model_of_its_own
from distances import relative
from our_nodes import put
from paceline.optimizers.core.errors import UnsupportedModel
from reusing import Calls, outcome, reuse

DEVICES = [torch.device("cpu"), torch.device("cpu", 0)]
"""ComfyUI takes the second for another device than the first."""


@pytest.fixture(scope="module")
def studio(studio):
    found = with_model_of_its_own(studio, checkpoints.smallest_unet(levels=2))
    found.model.cached_patcher_init = (lambda: checkpoints.smallest_unet(levels=2), ())
    return found


@pytest.fixture
def split(monkeypatch):
    import comfy.model_management
    import comfy.multigpu

    monkeypatch.setattr(comfy.model_management, "get_all_torch_devices", lambda exclude_current=False: DEVICES)
    return lambda model: comfy.multigpu.create_multigpu_deepclones(model, 2)


def test_each_network_is_compiled_once(studio, split):
    """torch compiles anew what fits, where another thread compiles at the same time."""
    torch._dynamo.reset()
    model = split(put(studio, "compile", studio.model))
    assert relative(studio.sample(model), studio.sample(split(studio.model))) < 1e-5
    assert "2 kinds of block, 3 places: 4 graphs, 0 recompiles" in (report := studio.report(model)), report
    torch._dynamo.reset()


def test_both_networks_compute_the_same_steps_and_no_others(studio, split):
    model, alone = split(reuse(studio, studio.model)), reuse(studio, studio.model)
    plain, expected = studio.sample(studio.model, steps=12), studio.sample(alone, steps=12)
    (other,) = model.get_additional_models_with_key("multigpu")
    with Calls(model.model.diffusion_model) as here, Calls(other.model.diffusion_model) as there:
        found = studio.sample(model, steps=12)
    done = outcome(model)
    assert done.forecast >= 3 and here.count == there.count == done.computed == outcome(alone).computed
    # Rounding can choose another of two forecasts that are as good.
    assert relative(found, expected) < 0.1 * relative(expected, plain)
    assert torch.equal(studio.sample(model, steps=12), found)


@pytest.mark.parametrize("name", ["weight_only", "precision"])
def test_both_networks_get_other_weights_or_the_node_says_where_it_belongs(studio, split, name):
    alone = put(studio, name, studio.model)
    model = split(alone)
    assert relative(studio.sample(model), studio.sample(alone)) < 1e-5
    assert not torch.equal(studio.sample(alone), studio.sample(studio.model))
    assert studio.tome(model) is not None  # what needs no other weights may follow
    with pytest.raises(UnsupportedModel, match=r"MultiGPU CFG Split.* Put that node after the nodes that change"):
        put(studio, name, split(studio.model))
