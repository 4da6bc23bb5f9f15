"""Fuse QKV where others patch attention, change its projections, or load it in part: obeyed, and counted."""

from __future__ import annotations

import pytest
import torch
from comfy_host import checkpoints

ALL, TEXT = "q, k and v in 14", "k and v in 14"


def test_a_second_node_replaces_the_first_and_the_order_does_not_matter(studio, fuse):
    assert studio.report(fuse(fuse(studio.model))).count("Fuse QKV") == 1
    one = studio.attention(studio.tome(fuse(studio.model)), "vanilla")
    two = fuse(studio.tome(studio.attention(studio.model, "vanilla")))
    assert torch.equal(studio.sample(one), studio.sample(two))


@pytest.mark.parametrize(
    ("settings", "fused"),
    [
        ({"method": "merge"}, (ALL, TEXT)),
        ({"method": "local_merge"}, (ALL, TEXT)),
        # Keys and values of fewer tokens than the queries: those two together, the queries alone.
        ({"method": "kv_downsample", "ratio": 0.75}, ("q, k and v in 8", "k and v in 20")),
        ({"method": "merge", "merge_crossattn": True, "merge_mlp": True}, (ALL, TEXT)),
    ],
    ids=["merge", "local_merge", "kv_downsample", "merge everywhere"],
)
def test_beside_apply_tome(studio, fuse, settings, fused):
    model = studio.tome(studio.model, **settings)
    found = studio.sample(fuse(model))
    torch.testing.assert_close(found, studio.sample(model), rtol=1e-4, atol=1e-4)
    report = studio.report(fused_model := fuse(model))
    assert "not sampled yet" in report  # a new technique, nothing counted so far
    studio.sample(fused_model)
    report = studio.report(fused_model)
    assert all(text in report for text in fused), report
    assert "q k v: " in report and report.count("fallbacks: 0") + report.count("; 0 fallbacks") == 2


def test_patches_that_need_separate_projections_are_obeyed_and_counted(studio, fuse):
    def other_values(q, k, v, extra_options):
        return q, k, v * 0.5

    patched = studio.model.clone()
    patched.set_model_attn1_patch(other_values)
    patched.set_model_attn2_patch(other_values)
    model = fuse(patched)
    torch.testing.assert_close(studio.sample(model), studio.sample(patched), rtol=1e-5, atol=1e-5)
    report = studio.report(model)
    assert "28 x fallback: other code gives keys and values tokens of their own" in report


def test_longer_context_fuses_keys_and_values_only(studio, fuse):
    """Reference-style nodes append tokens to keys and values, the same to both."""

    def extend(q, k, v, extra_options):
        longer = torch.cat([k, k[:, :8]], dim=1)
        return q, longer, longer

    patched = studio.model.clone()
    patched.set_model_attn1_patch(extend)
    model = fuse(patched)
    torch.testing.assert_close(studio.sample(model), studio.sample(patched), rtol=1e-5, atol=1e-5)
    assert "k and v in 28" in studio.report(model)


def test_replaced_attention_gets_its_projections_one_by_one(studio, fuse):
    """IP-Adapter and its kin replace attention to the text and add tokens of their own."""
    from comfy.ldm.modules.attention import optimized_attention

    def with_image(q, k, v, extra_options):
        image = torch.ones_like(k[:, :4])
        return optimized_attention(q, torch.cat([k, image], 1), torch.cat([v, image], 1), extra_options["n_heads"])

    patched = studio.model.clone()
    patched.set_model_attn2_replace(with_image, "input", 1)
    model = fuse(patched)
    torch.testing.assert_close(studio.sample(model), studio.sample(patched), rtol=1e-5, atol=1e-5)
    report = studio.report(model)
    assert ALL in report and "k and v in 12" in report
    assert "2 x fallback: other code replaces this attention" in report


def test_core_nodes_that_patch_attention(studio, core_node, fuse):
    pag = core_node("comfy_extras.nodes_pag", "PerturbedAttentionGuidance", model=studio.model, scale=3.0)
    tiling = {"tile_size": 64, "swap_size": 1, "max_depth": 0, "scale_depth": False}
    tiled = core_node("comfy_extras.nodes_hypertile", "HyperTile", model=studio.model, **tiling)
    for patched in (pag, tiled):
        torch.testing.assert_close(studio.sample(fuse(patched)), studio.sample(patched), rtol=1e-5, atol=1e-5)


def test_a_layer_that_is_only_partly_loaded_is_left_alone(studio, fuse):
    """ComfyUI applies LoRAs at each use to the weights that did not fit; those change from one use to the next."""
    model = checkpoints.tiny_sd15(width=32, context=48)
    studio.sample(model, steps=1)
    layer = model.model.diffusion_model.input_blocks[1][1].transformer_blocks[0].attn1.to_v
    layer.weight_function = [lambda weight: weight * 2]
    fused = fuse(model)
    found = studio.sample(fused, steps=1)
    torch.testing.assert_close(found, studio.sample(model, steps=1), rtol=1e-5, atol=1e-5)
    report = studio.report(fused)
    assert "q, k and v in 6 and for k and v in 7" in report
    assert "1 x fallback: a LoRA is applied to its weights at each use" in report


def test_streamed_weights_and_foreign_forwards_are_left_alone(studio, fuse):
    model = checkpoints.tiny_sd15(width=32, context=48)
    block = model.model.diffusion_model.input_blocks[1][1].transformer_blocks[0]
    plain = block.attn1.to_q.forward
    block.attn1.to_q.forward = lambda x: plain(x) * 2  # a LoRA in bypass mode does this
    fused = fuse(model)
    torch.testing.assert_close(studio.sample(fused, steps=1), studio.sample(model, steps=1), rtol=1e-5, atol=1e-5)
    assert "1 x fallback: another node has changed how its projections compute" in studio.report(fused)
    assert "forward" in block.attn1.to_q.__dict__
