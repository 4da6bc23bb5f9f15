"""Our nodes beside ComfyUI's own patches, LoRA, ControlNet and inpainting."""

from __future__ import annotations

import torch
from model_changes import lora_for


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
    shrunk = core_node(
        "comfy_extras.nodes_model_downscale",
        "PatchModelAddDownscale",
        model=studio.model,
        block_number=1,
        downscale_factor=2.0,
        start_percent=0.0,
        end_percent=1.0,
        downscale_after_skip=True,
        downscale_method="bicubic",
        upscale_method="bicubic",
    )
    model = studio.tome(shrunk, max_downsample="2")
    assert studio.sample(model).isfinite().all()
    report = studio.report(model)
    assert "fallback" not in report
    assert "active in 7 of 7" in report


def test_other_attention_patches_run_outside_of_ours(studio):
    """A pair of patches that doubles and halves sees all tokens, whichever node comes first."""
    sizes = []

    def before(q, k, v, extra_options):
        sizes.append(("in", q.shape[1]))
        return q * 2, k * 2, v * 2

    def after(output, extra_options):
        sizes.append(("out", output.shape[1]))
        return output / 2

    def patched(model):
        clone = model.clone()
        clone.set_model_attn1_patch(before)
        clone.set_model_attn1_output_patch(after)
        return clone

    first, second = studio.sample(studio.tome(patched(studio.model))), studio.sample(patched(studio.tome(studio.model)))
    assert torch.equal(first, second)
    assert set(sizes) == {("in", 384), ("out", 384), ("in", 96), ("out", 96)}
