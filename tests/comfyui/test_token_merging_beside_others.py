"""Apply ToMe beside nodes that change attention themselves: image prompts, self-attention guidance."""

from functools import partial

import pytest
import torch
from cases import often
from trust.trust_nodes import others

BOTH_LEVELS = {"max_downsample": "2"}
METHODS = [{"method": "merge"}, {"method": "kv_downsample", "ratio": 0.75}]


THEIRS = "code in test_token_merging_beside_others.py computes this layer itself"


def random_tokens(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def with_image_prompt(model):
    """Image prompts as IP-Adapters add them: a second attention to tokens of an image, beside the one to the text."""
    from comfy.ldm.modules.attention import optimized_attention
    from paceline.optimizers.in_comfyui.structure.unet_blocks import described_blocks

    clone = model.clone()
    for number, (block, module) in enumerate(described_blocks(model.model.diffusion_model)):
        width = module.n_heads * module.d_head
        keys, values = random_tokens(number, 1, 4, width), random_tokens(number + 100, 1, 4, width)

        def replacement(q, k, v, extra_options, keys=keys, values=values):
            batch, heads = q.shape[0], extra_options["n_heads"]
            out = optimized_attention(q, k, v, heads)
            return out + 0.5 * optimized_attention(q, keys.repeat(batch, 1, 1), values.repeat(batch, 1, 1), heads)

        clone.set_model_attn2_replace(replacement, *block.key)
    return clone


def with_tokens_appended(model, name="attn1"):
    """Image prompts and references as other packs add them: more tokens behind the keys and values."""
    clone = model.clone()

    def append(q, k, v, extra_options):
        assert q.shape[1] in (384, 96), "all tokens: it runs outside of ours"
        more = random_tokens(5, 1, 4, k.shape[-1]).expand(k.shape[0], -1, -1)
        return q, torch.cat([k, more], dim=1), torch.cat([v, more], dim=1)

    clone.set_model_patch(append, f"{name}_patch")
    return clone


tokens_for_the_text = partial(with_tokens_appended, name="attn2")


@pytest.mark.parametrize("attach", often(["tome"], ["tome", "attention", "fuse_qkv"]))
def test_attention_whose_forward_another_node_has_replaced_stays_theirs(studio, fuse, attach):
    from comfy.ldm.modules.attention import CrossAttention

    theirs = studio.model.clone()
    for name, layer in studio.model.model.diffusion_model.named_modules():
        if isinstance(layer, CrossAttention) and name.endswith("attn1"):

            def forward(x, *args, layer=layer, **options):
                halves = (
                    CrossAttention.forward(layer, half, transformer_options=options["transformer_options"])
                    for half in x.chunk(2, 1)
                )
                return torch.cat([*halves], 1)

            theirs.add_object_patch(f"diffusion_model.{name}.forward", forward)
    plain, expected = studio.sample(studio.model), studio.sample(theirs)
    attached = {
        "tome": lambda: studio.tome(theirs, method="merge", **BOTH_LEVELS),
        "attention": lambda: studio.attention(theirs, "vanilla"),
        "fuse_qkv": lambda: fuse(theirs),
    }[attach]()
    assert (expected - plain).norm() > 0.01 * plain.norm()
    torch.testing.assert_close(studio.sample(attached), expected, rtol=1e-3, atol=1e-3)
    if attach == "tome":
        assert "not active in any" in studio.report(attached)
        assert THEIRS in studio.report(attached)


def test_attention_to_the_text_that_another_node_computes_keeps_all_its_queries(studio):
    """Image prompts with masks take the queries for places of the picture."""
    prompted = with_image_prompt(studio.model)
    model = studio.tome(prompted, merge_attn=False, merge_crossattn=True)
    assert torch.equal(studio.sample(model), studio.sample(prompted))
    assert f"skipped 3 blocks: {THEIRS}" in studio.report(model)


THEIRS_AND_OURS = [(with_image_prompt, settings) for settings in METHODS]
THEIRS_AND_OURS += [(tokens_for_the_text, settings) for settings in (*METHODS, {"merge_crossattn": True})]
THEIRS_AND_OURS += [(with_tokens_appended, settings) for settings in (METHODS[0], {"merge_crossattn": True})]


@pytest.mark.parametrize(("change", "settings"), THEIRS_AND_OURS)
def test_image_prompts_and_tokens_that_other_nodes_append_whichever_comes_first(studio, change, settings):
    theirs, ours = change(studio.model), studio.tome(studio.model, **settings, **BOTH_LEVELS)
    model = studio.tome(theirs, **settings, **BOTH_LEVELS)
    image = studio.sample(model)
    assert torch.equal(image, studio.sample(change(ours)))
    assert not torch.equal(image, studio.sample(ours)) and not torch.equal(image, studio.sample(theirs))
    assert "active in 7 of 7" in studio.report(model) and "fallback" not in studio.report(model)


def test_keys_that_are_no_longer_one_for_each_place_are_not_thinned_out(studio):
    extended = with_tokens_appended(studio.model)
    model = studio.tome(extended, method="kv_downsample", ratio=0.75)
    assert torch.equal(studio.sample(model), studio.sample(extended))
    assert "not active in any of 7" in studio.report(model)
    assert "another node added keys or values" in studio.report(model)


@pytest.mark.parametrize(("settings", "size"), [(METHODS[0], (24, 16)), (METHODS[1], (26, 34))], ids=["merge", "keys"])
def test_self_attention_guidance_sees_the_whole_map_of_its_block(studio, core_node, settings, size):
    """It blurs the picture where the middle block's keys get much attention, so their places must be the picture's."""

    def guided(model):
        return core_node("comfy_extras.nodes_sag", "SelfAttentionGuidance", model=model, scale=0.5, blur_sigma=2.0)

    maps = []

    def watched(model):
        """Note the number of keys in the middle block, wherever it is computed."""
        clone = model.clone()
        (inner,) = clone.model_options["transformer_options"]["patches_replace"]["attn1"].values()

        def watch(q, k, v, extra_options):
            maps.append((q.shape[1], k.shape[1]))
            return inner(q, k, v, extra_options)

        clone.set_model_attn1_replace(watch, "middle", 0, 0)
        return clone

    model = watched(studio.tome(guided(studio.model), **settings, **BOTH_LEVELS))
    image = studio.sample(model, size=size)
    other_way = guided(studio.tome(studio.model, **settings, **BOTH_LEVELS))
    assert torch.equal(image, studio.sample(other_way, size=size))
    assert set(maps) == {(size[0] * size[1] // 4, size[0] * size[1] // 4)}
    report = studio.report(model)
    assert "active in 6 of 7" in report and "fallback" not in report
    assert f"skipped 1 block: {THEIRS}" in report


def test_regional_prompts_keep_all_queries_of_their_own_batch(studio):
    """The queries of the positive pass are repeated for each region, and its outputs are blended."""

    def coupled(model):
        return others.couple(model)[0]

    def merged(model):
        return studio.tome(model, merge_crossattn=True, **BOTH_LEVELS)

    model = merged(coupled(studio.model))
    image = studio.sample(model)
    assert torch.equal(image, studio.sample(coupled(merged(studio.model))))
    assert torch.equal(image, studio.sample(coupled(studio.tome(studio.model, **BOTH_LEVELS))))
    report = studio.report(model)
    assert "active in 7 of 7" in report and "14 x fallback: another node or package gave a layer other tokens" in report


@pytest.mark.parametrize("heads_first", often([True], [False, True]), ids=["chunks of the batch", "heads first"])
def test_attention_in_parts_keeps_no_difference(studio, heads_first):
    def override(func, q, k, v, heads, *args, **kwargs):
        if heads_first:
            q, k, v = (t.unflatten(2, (heads, -1)).transpose(1, 2) for t in (q, k, v))
            return func(q, k, v, heads, *args, skip_reshape=True, **kwargs)
        return torch.cat(
            [func(*each, heads, *args, **kwargs) for each in zip(*(t.split(1) for t in (q, k, v)), strict=True)]
        )

    with_parts = studio.model.clone()
    with_parts.model_options["transformer_options"]["optimized_attention_override"] = override
    model = studio.tome(with_parts, **METHODS[1], residual="auto")
    image = studio.sample(model, steps=8)
    plain, fewer = (studio.sample(one, steps=8) for one in (studio.model, studio.tome(studio.model, **METHODS[1])))
    assert 0 < (image - plain).norm() <= (fewer - plain).norm()
    assert "x fallback: another node computes attention in parts or in another layout" in studio.report(model)
