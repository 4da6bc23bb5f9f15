"""Apply ToMe on ComfyUI's own UNets and samplers."""

from __future__ import annotations

import pytest
import torch
from attention_calls import attention_lengths
from reusing import guided

CUSTOM = "comfy_extras.nodes_custom_sampler"


@pytest.mark.parametrize(
    ("settings", "sizes", "blocks"),
    [
        ({"max_downsample": "2"}, {(192, 192), (384, 77), (48, 48), (96, 77)}, "7 of 7"),
        ({"method": "kv_downsample", "ratio": 0.75}, {(384, 117), (384, 77), (96, 96), (96, 77)}, "3 of 7"),
    ],
    ids=["merge", "kv_downsample"],
)
def test_attention_gets_the_tokens_that_are_left(studio, settings, sizes, blocks):
    model = studio.tome(studio.model, **settings)
    assert set(attention_lengths(model, studio.sample)) == sizes
    report = studio.report(model)
    assert f"active in {blocks} self-attention blocks" in report and "fallback" not in report


@pytest.mark.parametrize("method", ["merge", "kv_downsample"])
@pytest.mark.parametrize("size", [(17, 23), (33, 9)])
def test_odd_sizes_give_the_same_image_again(studio, method, size):
    model = studio.tome(studio.model, method=method, max_downsample="2", sx=3, sy=2)
    first = studio.sample(model, size=size)
    assert first.isfinite().all() and torch.equal(studio.sample(model, size=size), first)
    report = studio.report(model)
    assert "active in 7 of 7" in report and "fallback" not in report


def test_two_clones_in_one_sampling_run_keep_their_own_settings(studio, core_node):
    """A guider with two models: the positive pass merges by one clone's settings, the negative by the other's."""
    a, b = studio.tome(studio.model, ratio=0.25), studio.tome(studio.model, ratio=0.7)

    def sample(first, second):
        models = {"model": first, "model_negative": second}
        made = {"positive": studio.positive, "negative": studio.negative, "cfg": 5.0}
        return guided(first, core_node(CUSTOM, "DualModelGuider", **models, **made), steps=2)

    both_a, mixed, mixed_other_way, both_b = sample(a, a), sample(a, b), sample(b, a), sample(b, b)
    plain_negative = sample(a, studio.model)
    results = [both_a, mixed, mixed_other_way, both_b, plain_negative]
    for index, one in enumerate(results):
        for other in results[index + 1 :]:
            assert not torch.equal(one, other)
    sample(a, b)
    assert "384 -> 288 tokens" in studio.report(a) and "in 2 of" not in studio.report(a)
    assert "384 -> 116 tokens" in studio.report(b)


def test_seed_chooses_other_tokens_and_repeats(studio):
    one = studio.sample(studio.tome(studio.model, seed=1))
    assert torch.equal(studio.sample(studio.tome(studio.model, seed=1)), one)
    assert not torch.equal(studio.sample(studio.tome(studio.model, seed=2)), one)


@pytest.mark.parametrize("layer", ["merge_crossattn", "merge_mlp"])
def test_other_layers_merge_too_and_are_left_as_they_were(studio, baseline, layer):
    blocks = [m for m in studio.model.model.diffusion_model.modules() if type(m).__name__ == "BasicTransformerBlock"]
    model = studio.tome(studio.model, merge_attn=False, **{layer: True})
    changed = studio.sample(model)
    assert not torch.equal(changed, baseline)
    assert "active in 3 of 7 blocks" in studio.report(model)
    assert not any("forward" in block.ff.__dict__ for block in blocks)
    assert torch.equal(studio.sample(studio.model), baseline)
