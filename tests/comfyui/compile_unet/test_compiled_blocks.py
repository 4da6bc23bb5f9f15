"""Compile UNet on networks that torch.compile cannot trace in one piece: one graph for each kind of block."""

from __future__ import annotations

import pytest
import torch
from comfy_host import in_process
from comfy_host.transformers import build, conditioning, latent
from paceline.optimizers.families import find_family

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
    return model.get_attachment("paceline").find("compilation").last_summary().counts["graphs"]


def with_techniques(studio, model):
    model = studio.attention(model, "vanilla")
    fused_by_design = find_family(model.model.diffusion_model).fused_by_design
    return model if fused_by_design else studio.run("PacelineFuseQKV", model=model)


@pytest.mark.parametrize("name", NAMES)
def test_blocks_share_one_graph_and_other_techniques_count_and_draw_as_without_it(studio, name):
    model, more = build(name), conditions(name) | {"steps": 3}
    plain = sample(name, model, **more)
    eager = with_techniques(studio, model)
    compiled = blocks(studio, with_techniques(studio, model))
    expected = sample(name, eager, **more)
    assert torch.equal(sample(name, compiled, **more), expected) and not torch.equal(expected, plain)
    assert graphs(compiled) == NAMES[name]
    report = studio.report(compiled)
    assert "graph breaks" not in report and "its blocks alone" in report
    for technique in eager.get_attachment("paceline").techniques:
        said = compiled.get_attachment("paceline").find(technique.kind).last_summary()
        assert said == technique.last_summary() and said.state == "active"
    assert torch.equal(sample(name, model, **more), plain)


def test_patches_of_other_nodes_keep_blocks_uncompiled(studio):
    name, model = "minimax_h3", build("minimax_h3")
    model.set_model_patch_replace(lambda args, extra: extra["original_block"](args), "dit", "double_block", 0)
    compiled = blocks(studio, model)
    assert torch.equal(sample(name, compiled), sample(name, model))
    assert "patches need to know at which block they are" in studio.report(compiled)
