"""Reuse Steps with guiders, and with nodes that call the network for passes of their own."""

from __future__ import annotations

import pytest
import torch
from comfy_host import checkpoints
from reusing import Calls, guided, outcome, reuse, technique

pytestmark = pytest.mark.slow


def test_two_models_as_one_guider(studio, core_node):
    second = checkpoints.tiny_sd15(seed=5, width=32, context=48)
    model = reuse(studio, studio.model)
    made = {"positive": studio.positive, "negative": studio.negative, "cfg": 4.0}
    custom = "comfy_extras.nodes_custom_sampler"
    plain = guided(model, core_node(custom, "DualModelGuider", model=studio.model, model_negative=second, **made))
    with Calls(second.model.diffusion_model) as other:
        found = guided(model, core_node(custom, "DualModelGuider", model=model, model_negative=second, **made))
    assert outcome(model).forecast >= 3 and other.count == outcome(model).computed
    assert found.isfinite().all() and not torch.equal(found, plain)


def test_the_second_model_of_a_guider_is_not_asked_and_says_so(studio, core_node):
    """ComfyUI runs both models with the nodes of the first one."""
    second = checkpoints.tiny_sd15(seed=5, width=32, context=48)
    made = {"positive": studio.positive, "negative": studio.negative, "cfg": 4.0}
    reused = reuse(studio, second)
    studio.sample(reused, steps=12)
    assert outcome(reused).forecast >= 3  # which is over, and must not be shown again
    for first in (studio.model, reuse(studio, studio.model, budget=0.0)):
        guided(first, core_node("comfy_extras.nodes_custom_sampler", "DualModelGuider", model=first,
                                model_negative=reused, **made))  # fmt: skip
        said = technique(reused).last_summary()
        assert said.state == "inactive" and "guider" in str(said.details), said
        assert outcome(reused).evaluations == 0


def test_a_conditioning_without_entries_is_left_alone(studio):
    """ComfyUI takes zeros for its pass, and pictures moved six times as far as allowed; at a scale of 1 it has none."""
    model = reuse(studio, studio.model)
    plain = studio.sample(studio.model, steps=20, negative=[])
    assert torch.equal(studio.sample(model, steps=20, negative=[]), plain)
    assert "a conditioning is empty" in technique(model).last_summary().details[0]
    studio.sample(model, steps=20, negative=[], cfg=1.0)
    assert outcome(model).forecast >= 3
