"""Reports count what was done: blocks that did not run, or that other code has computed, are not in them."""

from __future__ import annotations

import pytest
import torch
from attention_calls import with_override


def skipping(model, every=2):
    """A step cache of another pack: the network's blocks do not run in each second call, and nothing says so."""
    calls, clone = [], model.clone()
    network = clone.model.diffusion_model
    plain, blocks = network.forward, [*network.input_blocks, network.middle_block, *network.output_blocks]

    def forward(x, timesteps=None, *args, **kwargs):
        calls.append(len(calls) % every == every - 1)
        if calls[-1]:
            return torch.zeros_like(x)
        return plain(x, timesteps, *args, **kwargs)

    assert blocks
    clone.add_object_patch("diffusion_model.forward", forward)
    return clone


def summary(model, kind):
    return model.get_attachment("paceline").find(kind).last_summary()


def with_all_tokens(func, q, k, v, *args, **kwargs):
    """Attention of another pack that was kept before tokens became fewer, as a cache of attention returns it."""
    out = func(q, k, v, *args, **kwargs)
    return out.repeat_interleave(2, 1) if q.shape[1] in (192, 48) and k.shape[1] == q.shape[1] else out


def test_blocks_whose_attention_others_have_made_whole_are_not_merged(studio):
    model = studio.tome(with_override(studio.model, with_all_tokens), max_downsample="1")
    studio.sample(model)
    found = summary(model, "token_merging")
    assert found.headline.startswith("not active in any of")
    assert any("returned all tokens instead of the merged ones" in line for line in found.details)


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled blocks"])
def test_int8_layers_are_counted_where_they_compute(studio, compiled):
    model = studio.run("PacelineQuantizeInt8", model=studio.model, include="attn, ff")
    if compiled:
        model = studio.run("PacelineCompileUNet", model=model, backend="eager", scope="repeated_blocks")
    studio.sample(model)
    every = summary(model, "int8").counts["layers"]
    assert every == len(model.get_attachment("paceline").find("int8").policy.choices.quantized)
    half = skipping(model)
    studio.sample(half)
    found = summary(half, "int8")
    assert found.counts == {"layers": every / 2, "model_calls": 2, "fallbacks": 0}
    none = skipping(model, every=1)
    studio.sample(none)
    assert summary(none, "int8").headline == "not active: none of its int8 layers was called"


def test_layers_that_fuse_qkv_leaves_alone_are_counted_where_they_are_called(studio):
    model = studio.run("PacelineFuseQKV", model=studio.model)
    attention = studio.model.model.diffusion_model.input_blocks[1][1].transformer_blocks[0].attn1
    studio.sample(model, steps=1)
    plain = attention.to_v
    attention.to_v.weight_function = [lambda weight: weight * 2]
    try:
        studio.sample(skipping(model))
        found = summary(model, "qkv_fusion")
        assert found.counts["fallbacks"] == 1 and found.details[0].startswith("1 x fallback: the model is only partly")
        studio.sample(skipping(model, every=1))
        assert summary(model, "qkv_fusion").headline == "not active: no attention layer was called"
    finally:
        plain.weight_function = []
