"""Compile UNet on networks that torch.compile cannot trace in one piece: one graph for each kind of block."""

from __future__ import annotations

import pytest
import torch
from comfy_host.transformers import build
from paceline.optimizers.families import find_family
from sound_calls import CONDITIONS, guided, sample

pytestmark = pytest.mark.usefixtures("fresh_compiler")

NAMES = {"minimax_h3": 2, "ltx2": 1}
"""Models, and how many graphs they take: in some steps MiniMax H3's video and sound have one noise level, else two."""


def conditions(name):
    return CONDITIONS["first and last frame"][0] if name == "minimax_h3" else guided(name, 0.5, 0.0)


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
