"""Each of our nodes on a MODEL, off again and on again, and beside others' patches: no bit of them is lost."""

import copy
from itertools import product

import pytest
import torch
from attention_calls import with_override
from cases import often
from model_changes import lora_for
from our_nodes import ON, put, said, technique

EXACT = ("fuse", "channels_last", "compile")
"""What may draw the very bits of the plain model."""


def state_of(network):
    """Return the weights, and the names of all attributes of each module."""
    weights = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    return weights, {name: sorted(module.__dict__) for name, module in network.named_modules()}


@pytest.mark.parametrize("name", often(ON.keys() - {"kv_downsample", "residual", "weight_only", "channels_last"}, ON))
def test_off_again_is_bit_for_bit_what_it_was(studio, name):
    network, options = studio.model.model.diffusion_model, {"steps": 9 if name == "reuse" else 2}
    with torch.compiler.set_stance("force_eager"):
        plain, before = studio.sample(studio.model, **options), state_of(network)
        model, drawn = put(studio, name, studio.model), []
        for _ in range(2):
            drawn.append(studio.sample(model, **options))
            assert torch.equal(studio.sample(studio.model, **options), plain)
        assert all(torch.equal(picture, drawn[0]) for picture in drawn)
        assert not torch.equal(drawn[0], plain) or name in EXACT
        removed = studio.run("PacelineRemoveOptimizations", model=model)
        assert torch.equal(studio.sample(removed, **options), plain)
    assert removed.model is studio.model.model
    assert "No Paceline optimizations are attached" in studio.report(removed)
    kept = [key for part in (removed.wrappers, removed.callbacks) for keys in part.values() for key in keys]
    assert not any(str(key).startswith("paceline") for key in kept)
    weights, attributes = state_of(network)
    assert attributes == before[1]
    assert weights.keys() == before[0].keys()
    assert all(torch.equal(tensor, before[0][key]) and tensor.dtype == before[0][key].dtype
               for key, tensor in weights.items())  # fmt: skip


class Stopped(Exception):
    pass


@pytest.mark.parametrize("name", often(["residual", "reuse"], ON))
def test_an_error_in_the_middle_of_a_run_leaves_nothing_to_the_next(studio, name):
    model, calls = put(studio, name, studio.model), []

    def stop(*_):
        calls.append(1)
        if len(calls) == 5:
            raise Stopped

    with torch.compiler.set_stance("force_eager"):
        expected = studio.sample(model, steps=9)
        watch = model.model.diffusion_model.register_forward_hook(stop)
        with pytest.raises(Stopped):
            studio.sample(model, steps=9, seed=99)
        watch.remove()
        assert name != "residual" or not technique(model).policy.kept._records, "no memory is held"
        assert torch.equal(studio.sample(model, steps=9), expected)


def test_removing_gives_the_baseline_and_keeps_the_lora(studio, baseline):
    model = studio.attention(studio.tome(lora_for(studio.model)), "vanilla")
    removed = studio.run("PacelineRemoveOptimizations", model=model)
    assert torch.equal(studio.sample(removed), studio.sample(lora_for(studio.model)))
    assert not torch.equal(studio.sample(removed), baseline)


def test_hypertile_keeps_its_blocks_and_we_say_that_we_stepped_aside(studio, core_node):
    """HyperTile rearranges the tokens of whole blocks; merging those by place would mix up the image."""
    options = {"tile_size": 64, "swap_size": 1, "max_depth": 0, "scale_depth": False}
    tiled = core_node("comfy_extras.nodes_hypertile", "HyperTile", model=studio.model, **options)
    ours_first = core_node("comfy_extras.nodes_hypertile", "HyperTile", model=studio.tome(studio.model), **options)
    for model in (studio.tome(tiled), ours_first):
        assert torch.equal(studio.sample(model), studio.sample(tiled))
        report = studio.report(model)
        assert "not active in any of 7" in report
        assert "another node or extension had already rearranged the tokens" in report


def test_core_tome_beside_ours_merges_once(studio, core_node):
    core = core_node("comfy_extras.nodes_tomesd", "TomePatchModel", model=studio.model, ratio=0.5)
    torch.manual_seed(0)
    expected = studio.sample(core)
    torch.manual_seed(0)
    both = studio.tome(core)
    assert torch.equal(studio.sample(both), expected)
    assert "another node or extension had already rearranged the tokens" in studio.report(both)


def test_deep_shrink_merges_by_the_size_the_block_really_has(studio, core_node):
    inputs = {"block_number": 1, "downscale_factor": 2.0, "start_percent": 0.0, "end_percent": 1.0,
              "downscale_after_skip": True, "downscale_method": "bicubic", "upscale_method": "bicubic"}  # fmt: skip
    shrunk = core_node("comfy_extras.nodes_model_downscale", "PatchModelAddDownscale", model=studio.model, **inputs)
    model = studio.tome(shrunk, max_downsample="2")
    assert studio.sample(model).isfinite().all()
    assert "active in 7 of 7" in (report := studio.report(model)) and "fallback" not in report


NODES = ("merge", "attention", "reuse")


def no_deeper(value):
    """Copy dictionaries and lists, and share everything else: as nodes do that do not copy deeply."""
    if isinstance(value, dict):
        return {key: no_deeper(item) for key, item in value.items()}
    return [*value] if isinstance(value, list) else value


def whole_run(model, copied):
    """A run with a copy of its options."""
    from comfy.patcher_extension import WrappersMP

    def sampler_sample(executor, guider, sigmas, extra_args, *args, **kwargs):
        options = copied(extra_args["model_options"])
        return executor(guider, sigmas, {**extra_args, "model_options": options}, *args, **kwargs)

    clone = model.clone()
    clone.add_wrapper_with_key(WrappersMP.SAMPLER_SAMPLE, "other", sampler_sample)
    return clone


def before_the_run(model, copied):
    """A MODEL with a copy of all that hangs on it."""
    clone = model.clone()
    for name in ("model_options", "wrappers", "callbacks", "attachments"):
        setattr(clone, name, copied(getattr(clone, name)))
    return clone


@pytest.mark.parametrize(
    ("name", "other"),
    often([("reuse", whole_run), ("merge", before_the_run)], product(NODES, (whole_run, before_the_run)), several=True),
)
def test_a_deep_copy_leads_to_the_same_run(studio, other, name):
    drawn, counts = [], []
    for copied in (no_deeper, copy.deepcopy):
        model = other(put(studio, name, studio.model), copied)
        drawn.append(studio.sample(model, steps=12 if name == "reuse" else 2))
        counts.append(said(model))
    assert torch.equal(*drawn)
    assert counts[0] == counts[1] and counts[0].state != "waiting"


def skipping(model, every=2):
    """A step cache of another pack: the network's blocks do not run in each second call, and nothing says so."""
    calls, clone = [], model.clone()
    plain = clone.model.diffusion_model.forward

    def forward(x, timesteps=None, *args, **kwargs):
        calls.append(len(calls) % every == every - 1)
        if calls[-1]:
            return torch.zeros_like(x)
        return plain(x, timesteps, *args, **kwargs)

    clone.add_object_patch("diffusion_model.forward", forward)
    return clone


def with_all_tokens(func, q, k, v, *args, **kwargs):
    """Attention of another pack that was kept before tokens became fewer, as a cache of attention returns it."""
    out = func(q, k, v, *args, **kwargs)
    return out.repeat_interleave(2, 1) if q.shape[1] in (192, 48) and k.shape[1] == q.shape[1] else out


def test_blocks_whose_attention_others_have_made_whole_are_not_merged(studio):
    model = studio.tome(with_override(studio.model, with_all_tokens), max_downsample="1")
    studio.sample(model)
    found = said(model, "token_merging")
    assert found.headline.startswith("not active in any of")
    assert any("returned all tokens instead of the merged tokens" in line for line in found.details)


def test_int8_layers_are_counted_where_they_compute(studio):
    model = put(studio, "int8", studio.model)
    studio.sample(model)
    every = said(model, "int8").counts["layers"]
    assert every == len(technique(model, "int8").policy.choices.quantized)
    half = skipping(model)
    studio.sample(half)
    found = said(half, "int8")
    assert found.counts == {"layers": every / 2, "model_calls": 2, "fallbacks": 0}
    none = skipping(model, every=1)
    studio.sample(none)
    assert said(none, "int8").headline == "not active: none of its int8 layers was called"


def test_layers_that_fuse_qkv_leaves_alone_are_counted_where_they_are_called(studio):
    model = studio.run("PacelineFuseQKV", model=studio.model)
    attention = studio.model.model.diffusion_model.input_blocks[1][1].transformer_blocks[0].attn1
    studio.sample(model, steps=1)
    plain = attention.to_v
    attention.to_v.weight_function = [lambda weight: weight * 2]
    try:
        studio.sample(skipping(model))
        found = said(model, "qkv_fusion")
        assert found.counts["fallbacks"] == 1 and found.details[0].startswith("1 x fallback: the model is only partly")
        studio.sample(skipping(model, every=1))
        assert said(model, "qkv_fusion").headline.startswith("not active: no attention layer was called")
    finally:
        plain.weight_function = []
