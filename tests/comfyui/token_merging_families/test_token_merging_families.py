"""Apply ToMe on diffusion transformers: ComfyUI's own classes and samplers, random weights."""

from __future__ import annotations

import re

import pytest
import torch
from cases import often
from comfy_host.transformers import build
from distances import close
from families import covering
from transformer_calls import HALVES, NAMES, grid, oracle, sample, with_override

OFTEN = covering(NAMES)


@pytest.mark.parametrize("name", often(OFTEN, NAMES))
def test_it_is_exactly_leaving_out_rows_and_columns_of_image_keys_and_values(studio, zoo, name):
    model = studio.tome(zoo(name), **HALVES)
    reduced = sample(name, model)
    assert close(reduced, sample(name, with_override(zoo(name), oracle(name))))
    assert not close(reduced, sample(name, zoo(name)))
    text, frames, rows, columns, padding = grid(name)
    before = text + frames * rows * columns + padding
    after = text + frames * (rows // 2 + 1) * (columns // 2 + 1) + padding
    blocks = model.get_attachment("paceline").find("token_merging").policy.total_places
    report = studio.report(model)
    assert f"active in {blocks} of {blocks} blocks" in report and "fallbacks: 0" in report
    assert re.search(rf"{before} -> {after}.* keys and values", report)


WHOLE_PATCHES = ("hunyuan_video", "wan_vace", "hidream_o1", "kandinsky5", "kandinsky5_image")
"""Networks that take no other sizes, with or without us."""


@pytest.mark.parametrize("name", often(OFTEN, [name for name in NAMES if name not in WHOLE_PATCHES]))
@pytest.mark.parametrize(("height", "width"), often([(17, 23)], [(17, 23), (9, 33)], several=True))
def test_odd_sizes_that_the_network_pads(studio, zoo, name, height, width):
    model = studio.tome(zoo(name), method="kv_downsample", ratio=0.5)
    result = sample(name, model, height, width, batch=2)
    assert result.shape[-2:] == (height, width) and result.isfinite().all()
    assert "fallbacks: 0" in studio.report(model)
    text, frames, rows, columns, padding = grid(name, height, width)
    kept = (round(rows * 0.5**0.5) + 1) * (round(columns * 0.5**0.5) + 1) * frames
    assert f"{text + frames * rows * columns + padding} -> {text + kept + padding}" in studio.report(model)


@pytest.mark.parametrize("name", ["flux", "wan"])
def test_an_override_of_another_pack_stays_in_force_whichever_comes_first(studio, zoo, name):
    def doubled_values(func, q, k, v, *args, **kwargs):
        return func(q, k, v * 2, *args, **kwargs)

    def both(func, q, k, v, *args, **kwargs):
        return oracle(name)(func, q, k, v * 2, *args, **kwargs)

    expected = sample(name, with_override(zoo(name), both))
    assert close(sample(name, studio.tome(with_override(zoo(name), doubled_values), **HALVES)), expected)
    assert close(sample(name, with_override(studio.tome(zoo(name), **HALVES), doubled_values)), expected)


def test_an_override_that_computes_by_itself_is_reported(studio, zoo):
    def selfish(func, q, k, v, heads, **kwargs):
        return q.transpose(1, 2).flatten(2)

    model = studio.tome(with_override(zoo("flux"), selfish), **HALVES)
    sample("flux", model)
    assert "5 x fallback: an attention override of another node computed the call itself" in studio.report(model)


def test_a_ratio_of_zero_windows_a_second_node_and_the_original_afterwards(studio, zoo):
    baseline = sample("flux", zoo("flux"), steps=4)
    assert torch.equal(sample("flux", studio.tome(zoo("flux"), **HALVES | {"ratio": 0.0}), steps=4), baseline)
    late = studio.tome(zoo("flux"), **HALVES, start_percent=0.5)
    sample("flux", late, steps=4)
    assert "of 4 model calls" in studio.report(late)
    never = studio.tome(zoo("flux"), **HALVES, start_percent=0.3, end_percent=0.3)
    assert torch.equal(sample("flux", never, steps=4), baseline)
    twice = studio.tome(studio.tome(zoo("flux"), method="kv_downsample", ratio=0.4), **HALVES)
    once = studio.tome(zoo("flux"), **HALVES)
    assert torch.equal(sample("flux", twice, steps=4), sample("flux", once, steps=4))
    assert studio.report(twice).count("Apply ToMe") == 1
    assert torch.equal(sample("flux", zoo("flux"), steps=4), baseline)


def test_auto_leaves_small_images_alone_and_says_so(studio, zoo):
    model = studio.tome(zoo("flux"), method="auto", ratio=0.75)
    assert torch.equal(sample("flux", model), sample("flux", zoo("flux")))
    assert "auto switched itself off" in studio.report(model)
    sample("flux", model, 32, 32)
    report = studio.report(model)
    assert "276 -> 101 keys and values" in report and "fallbacks: 0" in report


def test_a_subclass_may_lay_out_its_tokens_otherwise(studio, zoo):
    model = build("wan")
    network = model.model.diffusion_model
    network.__class__ = type("OtherWan", (type(network),), {"__module__": "comfy.ldm.wan.model_other"})
    with pytest.raises(Exception, match="cannot merge tokens in WAN21 .OtherWan.: poses or earlier .* It works with"):
        studio.tome(model, **HALVES)


def test_the_table_names_all_families(studio):
    from paceline.optimizers.families.table import FAMILIES
    from update_models import families_table

    table = families_table()
    for family in FAMILIES:
        if family.tokens is not None:
            assert f"| {family.tokens.models or family.name} | auto, kv_downsample |" in table
        elif not family.unets:
            assert f"| {family.name} | none |" in table
    for name in ("SD 1.x", "SD 2.x", "SDXL refiner", "SVD", "HunyuanDiT", "all others"):
        assert name in table
    assert {line.count("|") for line in table.splitlines()} == {5}
