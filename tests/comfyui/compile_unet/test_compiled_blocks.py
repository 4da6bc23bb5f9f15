"""Compile UNet on the blocks of a network: one graph for each kind of block, whatever others run inside of it."""

import model_changes as changes
import pytest
import torch
from cases import often
from comfy_host import checkpoints, in_process
from comfy_host.transformers import build, conditioning, latent
from compiled_models import with_model_of_its_own
from our_nodes import said
from paceline.optimizers.models.families import find_family

pytestmark = pytest.mark.usefixtures("fresh_compiler")

FRAMES, ROWS, COLUMNS, SOUND = 3, 8, 12, 10
NAMES = {"minimax_h3": 2, "ltx2": 1}
"""Models, and how many graphs they take: in some steps MiniMax H3's video and sound have one noise level, else two."""


def random(*size):
    return torch.randn(size, generator=torch.Generator().manual_seed(3))


def conditions(name):
    """Return frames that the video begins and ends with, for MiniMax H3, or the last one as a guide, for LTX."""
    if name == "minimax_h3":
        frames = [{"resolved_frame_index": index, "latent": random(1, 24, 1, 16, 24)} for index in (0, 8)]
        return {"minimax_keyframes": frames, "minimax_frame_count": 9}
    from comfy.nested_tensor import NestedTensor

    masks = torch.ones(1, 1, FRAMES, ROWS, COLUMNS)
    masks[:, :, -1] = 0.0
    entry = {"strength": 0.5, "pre_filter_count": ROWS * COLUMNS, "latent_shape": (1, ROWS, COLUMNS)}
    guide = {"guide_attention_entries": [entry | {"pixel_mask": None}]}
    guide["keyframe_idxs"] = random(1, 3, ROWS * COLUMNS, 2).abs() * 8
    return guide | {"masks": NestedTensor((masks, torch.ones(1, 8, SOUND, 16)))}


def sample(name, model, masks=None, steps=1, **more):
    """Return video and sound, flat, one behind the other."""
    positive, negative = (conditioning(name, seed=seed, **more) for seed in (1, 2))
    patch = 2 if name == "minimax_h3" else 1
    samples = latent(name, ROWS * patch, COLUMNS * patch)
    chosen = samples if masks is None else {"samples": samples, "noise_mask": masks}
    drawn = in_process.sample(model, positive, negative, chosen, 7, steps, 7.0, scheduler="simple")
    return torch.cat([stream.flatten() for stream in drawn.unbind()])


def blocks(studio, model):
    return studio.run("PacelineCompileUNet", model=model, backend="eager")


def graphs(model):
    return said(model, "compilation").counts["graphs"]


def with_techniques(studio, model):
    model = studio.attention(model, "vanilla")
    fused_by_design = find_family(model.model.diffusion_model).fused_by_design
    return model if fused_by_design else studio.run("PacelineFuseQKV", model=model)


@pytest.mark.parametrize("name", often(["ltx2"], NAMES))
def test_blocks_share_one_graph_and_other_techniques_count_and_draw_as_without_it(studio, name):
    model, more = build(name), conditions(name) | {"steps": 3}
    plain = sample(name, model, **more)
    eager = with_techniques(studio, model)
    compiled = blocks(studio, with_techniques(studio, model))
    expected = sample(name, eager, **more)
    assert torch.equal(sample(name, compiled, **more), expected) and not torch.equal(expected, plain)
    assert graphs(compiled) == NAMES[name]
    report = studio.report(compiled)
    assert "graph breaks" not in report
    for technique in eager.get_attachment("paceline").techniques:
        found = said(compiled, technique.kind)
        assert found == technique.last_summary() and found.state == "active"
    assert torch.equal(sample(name, model, **more), plain)


def test_a_patch_around_a_block_leaves_it_compiled(studio):
    name, model = "minimax_h3", build("minimax_h3")
    model.set_model_patch_replace(lambda args, extra: extra["original_block"](args), "dit", "double_block", 0)
    compiled = blocks(studio, model)
    assert torch.equal(sample(name, compiled), sample(name, model))
    assert "fallback" not in studio.report(compiled)


def where(extra_options):
    return (*extra_options["block"], extra_options["block_index"])


def before_attention(model, seen):
    def patch(q, k, v, extra_options):
        seen.append(where(extra_options))
        assert "patches" not in extra_options and "sample_sigmas" in extra_options
        extra_options["mine"] = extra_options["block"][1] + 1
        return q, k * (1 + extra_options["block"][1] / 100), v

    def after(output, extra_options):
        return output * (1 + extra_options["mine"] / 100)

    model.set_model_attn1_patch(patch)
    model.set_model_attn1_output_patch(after)


def in_the_place_of_attention(model, seen):
    def replacement(q, k, v, extra_options):
        from comfy.ldm.modules.attention import optimized_attention

        seen.append(where(extra_options))
        return optimized_attention(q, k, v, extra_options["n_heads"]) * 0.9

    model.set_model_attn2_replace(replacement, "input", 1)
    model.set_model_attn2_replace(replacement, "output", 1, 0)


def around_attention(model, seen):
    def override(func, *args, **kwargs):
        seen.append(where(kwargs["transformer_options"]))
        return func(*args, **kwargs) * 1.1

    model.model_options["transformer_options"]["optimized_attention_override"] = override


def layers_of_its_own(model, seen):
    for path, layer in list(model.model.diffusion_model.named_modules()):
        if path.endswith("attn2.to_k"):

            def forward(tokens, layer=layer, path=path):
                seen.append(path)
                return type(layer).forward(layer, tokens) * 1.1

            model.add_object_patch(f"diffusion_model.{path}.forward", forward)


def all_of_them(model, seen):
    for patch in (before_attention, in_the_place_of_attention, around_attention, layers_of_its_own):
        patch(model, seen)


def test_patches_run_outside_of_code_that_blocks_share_and_know_where_they_are(studio):
    studio = with_model_of_its_own(studio, checkpoints.smallest_unet(levels=2))
    seen, patched = [], studio.model.clone()
    all_of_them(patched, seen)
    expected, places = studio.sample(patched), [*seen]
    assert not torch.equal(expected, studio.sample(studio.model))
    compiled = blocks(studio, patched)
    seen.clear()
    assert torch.equal(studio.sample(compiled), expected)
    assert seen == places
    count = graphs(compiled)
    again = studio.model.clone()
    all_of_them(again, [])  # new functions, more steps: the same code
    for steps in (2, 5):
        assert torch.equal(studio.sample(blocks(studio, again), steps=steps), studio.sample(again, steps=steps))
    assert graphs(compiled) == count
    report = studio.report(compiled)
    assert "fallback" not in report and "graph break" not in report


def test_what_others_do_between_the_blocks_compiles_nothing(studio, core_node):
    studio = with_model_of_its_own(studio, checkpoints.smallest_unet(levels=2))
    compiled = blocks(studio, studio.model)
    studio.sample(compiled, steps=4)
    count = graphs(compiled)
    for change in (changes.freeu, changes.easycache):
        changed = change(studio, core_node, studio.model)
        assert torch.equal(studio.sample(blocks(studio, changed), steps=4), studio.sample(changed, steps=4))
        assert graphs(compiled) == count


def test_apply_tome_runs_outside_of_code_that_blocks_share(studio):
    studio = with_model_of_its_own(studio, checkpoints.smallest_unet(levels=2))
    for settings in ({}, {"method": "merge", "merge_crossattn": True, "merge_mlp": True, "ratio": 0.5}):
        merged = studio.tome(studio.model, max_downsample="4", **settings)
        compiled = blocks(studio, merged)
        assert torch.equal(studio.sample(compiled, steps=4), studio.sample(merged, steps=4))
        found = [said(model, "token_merging") for model in (compiled, merged)]
        assert found[0] == found[1] and found[0].state == "active"
        assert "fallback" not in studio.report(compiled)


def test_one_kind_of_block_in_two_lists_is_compiled_for_both_sizes_at_once(studio):
    model = build("z_image")
    compiled, texts = blocks(studio, model), [conditioning("z_image", seed=seed) for seed in (1, 2)]
    drawn = [in_process.sample(one, *texts, latent("z_image"), steps=1, seed=7) for one in (compiled, model)]
    assert torch.equal(*drawn)
    counts = said(compiled, "compilation").counts
    assert (counts["graphs"], counts["recompiles"]) == (2, 0)
