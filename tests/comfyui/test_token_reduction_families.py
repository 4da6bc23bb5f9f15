"""Apply ToMe on diffusion transformers: ComfyUI's own classes and samplers, random weights."""

from __future__ import annotations

import re

import pytest
import torch
from comfy_host import in_process
from comfy_host.transformers import TRANSFORMERS, build, conditioning, latent

NAMES = list(TRANSFORMERS)
HALVES = {"method": "kv_downsample", "ratio": 0.75}
TEXT = 20


@pytest.fixture(scope="module")
def zoo(studio):
    """Models by name, made once."""
    models = {}
    return lambda name: models.setdefault(name, build(name)) if name not in models else models[name]


def sample(name, model, height=16, width=24, steps=1, text=TEXT, batch=1, cfg=7.0, **more):
    return in_process.sample(
        model,
        conditioning(name, text, seed=1, **more),
        conditioning(name, text, seed=2, **more),
        latent(name, height, width, batch),
        steps=steps,
        seed=7,
        cfg=cfg,
        scheduler="simple",
    )


def grid(name, height=16, width=24):
    """Text tokens, frames, rows, columns and padding of a model call."""
    entry = TRANSFORMERS[name]
    rows, columns = -(-height // entry.patch), -(-width // entry.patch)
    frames = entry.frames or 1
    text = 0 if name.startswith("wan") else entry.text(TEXT)
    return text, frames, rows, columns, -(frames * rows * columns) % entry.padding


def with_override(model, override):
    clone = model.clone()
    clone.model_options["transformer_options"]["optimized_attention_override"] = override
    return clone


def every_second(x, text, frames, rows, columns, axis):
    """Leave out every second row and column of the image but the last, by slicing."""
    before, image, behind = x.tensor_split([text, text + frames * rows * columns], dim=axis)
    image = image.unflatten(axis, (frames, rows, columns))
    for side in (axis + 1, axis + 2):
        even = image.movedim(side, 0)[::2]
        image = torch.cat([even, image.movedim(side, 0)[-1:]]).movedim(0, side)
    return torch.cat([before, image.flatten(axis, axis + 2), behind], dim=axis)


def oracle(name):
    """An override that does by hand what kv_downsample with a ratio of 0.75 should do on even sizes."""
    text, frames, rows, columns, padding = grid(name)
    image = frames * rows * columns
    sizes = {text + image + padding: text}
    if name == "sd35_medium":
        sizes[image] = 0

    def override(func, q, k, v, heads, mask=None, skip_reshape=False, **kwargs):
        axis = 2 if skip_reshape else 1
        if q.shape[axis] == k.shape[axis] and k.shape[axis] in sizes:
            before = sizes[k.shape[axis]]
            k, v = (every_second(x, before, frames, rows, columns, axis) for x in (k, v))
            if mask is not None:
                mask = every_second(mask, before, frames, rows, columns, mask.ndim - 1)
        return func(q, k, v, heads, mask=mask, skip_reshape=skip_reshape, **kwargs)

    return override


def close(a, b):
    return ((a - b).norm() / b.norm()).item() < 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_it_is_exactly_leaving_out_rows_and_columns_of_image_keys_and_values(studio, zoo, name):
    baseline = sample(name, zoo(name))
    model = studio.tome(zoo(name), **HALVES)
    reduced = sample(name, model)
    assert close(reduced, sample(name, with_override(zoo(name), oracle(name))))
    assert not close(reduced, baseline)
    text, frames, rows, columns, padding = grid(name)
    before = text + frames * rows * columns + padding
    after = text + frames * (rows // 2 + 1) * (columns // 2 + 1) + padding
    blocks = model.get_attachment("paceline").find("token_merging").total_places
    report = studio.report(model)
    assert f"active in {blocks} of {blocks} blocks" in report and "fallbacks: 0" in report
    assert re.search(rf"{before} -> {after}.* keys and values", report)
    assert torch.equal(sample(name, zoo(name)), baseline)
    assert torch.equal(sample(name, studio.tome(zoo(name), **HALVES | {"ratio": 0.0})), baseline)


def attention_inside(studio, name, model):
    """Sample, and return queries, keys and values of each call as the backend gets them."""
    model = studio.attention(model, "sdpa")
    technique = model.get_attachment("paceline").find("attention")
    original, seen = technique.function, []

    def spy(q, k, v, **options):
        seen.append((q.clone(), k.clone(), v.clone()))
        return original(q, k, v, **options)

    technique.function = spy
    sample(name, model)
    return seen


@pytest.mark.parametrize("name", NAMES)
def test_text_and_queries_are_untouched(studio, zoo, name):
    whole = attention_inside(studio, name, zoo(name))
    reduced = attention_inside(studio, name, studio.tome(zoo(name), **HALVES))
    assert [q.shape for q, _, _ in whole] == [q.shape for q, _, _ in reduced]
    first = next(i for i, (a, b) in enumerate(zip(whole, reduced, strict=True)) if a[1].shape != b[1].shape)
    text, frames, rows, columns, padding = grid(name)
    kept = (rows // 2 + 1) * (columns // 2 + 1)
    for index, (before, after) in enumerate(zip(whole[first], reduced[first], strict=True)):
        assert torch.equal(before[:, :, :text], after[:, :, :text])
        if index == 0:
            assert torch.equal(before, after)
            continue
        assert torch.equal(after, every_second(before, text, frames, rows, columns, 2))
        assert after.shape[2] == text + frames * kept + padding


@pytest.mark.parametrize("name", NAMES)
def test_any_order_with_an_attention_backend(studio, zoo, name):
    model = zoo(name)
    inside = studio.attention(studio.tome(model, **HALVES), "vanilla")
    outside = studio.tome(studio.attention(model, "vanilla"), **HALVES)
    first = sample(name, inside)
    assert torch.equal(sample(name, outside), first)
    assert ((first - sample(name, studio.tome(model, **HALVES))).norm() / first.norm()).item() < 1e-3
    for one in (inside, outside):
        report = studio.report(one)
        assert "active in" in report and "vanilla in" in report and "fallbacks: 0" in report


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("hunyuan_video", "wan_vace")])
@pytest.mark.parametrize("size", [(17, 23), (9, 33)])
def test_odd_sizes_that_the_network_pads(studio, zoo, name, size):
    """HunyuanVideo and VACE take no such sizes, with or without us."""
    model = studio.tome(zoo(name), method="kv_downsample", ratio=0.5)
    result = sample(name, model, *size, batch=2)
    assert result.shape[-2:] == size and result.isfinite().all()
    assert "fallbacks: 0" in studio.report(model)
    text, frames, rows, columns, padding = grid(name, *size)
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


REFERENCES = [(16, 24), (12, 8)]


def with_references(name):
    return {"reference_latents": [torch.randn_like(latent(name, *size)) for size in REFERENCES]}


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("flux", "offset"),
        ("flux", "index"),
        ("flux", "uxo"),
        ("flux2", "index"),
        ("flux2", "index_timestep_zero"),
        ("qwen_image", "index"),
        ("qwen_image", "index_timestep_zero"),
    ],
)
def test_reference_images_are_thinned_out_each_on_its_own_grid(studio, zoo, name, method):
    pictures = [grid(name), *(grid(name, *size) for size in REFERENCES)]
    text = pictures[0][0]
    sizes = [frames * rows * columns for _, frames, rows, columns, _ in pictures]
    before = text + sum(sizes)

    def override(func, q, k, v, heads, mask=None, attn_precision=None, skip_reshape=False, **kwargs):
        axis = 2 if skip_reshape else 1
        if k.shape[axis] == before:
            k, v = (_each_on_its_own(x, axis) for x in (k, v))
        return func(q, k, v, heads, mask, attn_precision, skip_reshape, **kwargs)

    def _each_on_its_own(x, axis):
        words, *parts = x.split([text, *sizes], dim=axis)
        thin = [every_second(part, 0, *shape[1:4], axis) for part, shape in zip(parts, pictures, strict=True)]
        return torch.cat([words, *thin], dim=axis)

    references = with_references(name) | {"reference_latents_method": method}
    model = studio.tome(zoo(name), **HALVES)
    reduced = sample(name, model, **references)
    assert close(reduced, sample(name, with_override(zoo(name), override), **references))
    assert not close(reduced, sample(name, zoo(name), **references))
    after = text + sum(frames * (rows // 2 + 1) * (columns // 2 + 1) for _, frames, rows, columns, _ in pictures)
    report = studio.report(model)
    assert f"{before} -> {after} keys and values" in report and "fallbacks: 0" in report


def test_references_among_the_text_leave_the_calls_alone_and_are_counted(studio, zoo):
    model = studio.tome(zoo("z_image"), **HALVES)
    references = with_references("z_image")
    assert torch.equal(sample("z_image", model, **references), sample("z_image", zoo("z_image"), **references))
    assert "not active in any of" in studio.report(model)
    assert "reference images, or tokens added by another node" in studio.report(model)


def test_self_attention_that_could_be_attention_to_the_text_is_left_alone(studio, zoo):
    model = studio.tome(zoo("wan"), **HALVES)
    assert torch.equal(sample("wan", model, 8, 8, text=48), sample("wan", zoo("wan"), 8, 8, text=48))
    assert "text and image have the same number of tokens" in studio.report(model)


@pytest.mark.parametrize("name", ["qwen_image", "hunyuan_video"])
def test_a_mask_is_reduced_with_the_keys(studio, zoo, name):
    mask = torch.ones(1, TEXT, dtype=torch.long)
    mask[:, 15:] = 0
    model = studio.tome(zoo(name), **HALVES)
    # cfg 1: one pass only, because HunyuanVideo's mask takes no batches
    reduced = sample(name, model, cfg=1.0, attention_mask=mask)
    assert close(reduced, sample(name, with_override(zoo(name), oracle(name)), cfg=1.0, attention_mask=mask))
    assert not close(reduced, sample(name, model, cfg=1.0))
    assert "fallbacks: 0" in studio.report(model)


@pytest.mark.parametrize(
    ("mask", "options", "reason"),
    [
        (torch.zeros(1, 1, 116, 7), {}, "not of one size"),
        (None, {"img_slice": [18, 116]}, "in other places"),
        (None, {"grid_sizes": (1, 12, 8)}, "in other places"),
        (None, {"reference_image_num_tokens": [16]}, "in other places"),
    ],
)
def test_calls_that_contradict_what_is_known_are_left_alone(studio, zoo, mask, options, reason):
    from paceline.core.activity import Activity
    from paceline.optimizers.hosts.comfyui.stack import ModelCall

    technique = studio.tome(zoo("flux"), **HALVES).get_attachment("paceline").find("token_merging")
    shapes = {"x": (1, 16, 16, 24), "c_crossattn": (1, TEXT, 24)}
    call, activity = ModelCall(zoo("flux").model, torch.ones(1), options, shapes), Activity()
    technique.install(call, activity)
    q = torch.zeros(1, 2, 116, 16)
    seen = technique._attend(
        lambda q, k, v, heads, **kwargs: (k, kwargs["mask"]),
        *(q, q, q, 2),
        mask=mask,
        skip_reshape=True,
        transformer_options=call.transformer_options,
    )
    assert seen[0] is q and seen[1] is mask
    assert activity.fallback_count == 1 and reason in next(iter(activity.fallbacks))


def test_clones_windows_ramps_and_a_second_node(studio, zoo):
    baseline = sample("flux", zoo("flux"), steps=4)
    late = studio.tome(zoo("flux"), **HALVES, start_percent=0.5)
    sample("flux", late, steps=4)
    assert "of 4 model calls" in studio.report(late)
    never = studio.tome(zoo("flux"), **HALVES, start_percent=0.3, end_percent=0.3)
    assert torch.equal(sample("flux", never, steps=4), baseline)
    twice = studio.tome(studio.tome(zoo("flux"), method="kv_downsample", ratio=0.4), **HALVES)
    once = studio.tome(zoo("flux"), **HALVES)
    assert torch.equal(sample("flux", twice, steps=4), sample("flux", once, steps=4))
    assert studio.report(twice).count("Apply ToMe") == 1
    faded = studio.tome(zoo("flux"), **HALVES, ramp="fade_out")
    assert not torch.equal(sample("flux", faded, steps=4), sample("flux", once, steps=4))
    assert torch.equal(sample("flux", zoo("flux"), steps=4), baseline)


def test_auto_leaves_small_images_alone_and_says_so(studio, zoo):
    model = studio.tome(zoo("flux"), method="auto", ratio=0.75)
    assert torch.equal(sample("flux", model), sample("flux", zoo("flux")))
    assert "auto switched itself off" in studio.report(model)
    sample("flux", model, 32, 32)
    report = studio.report(model)
    assert "276 -> 101 keys and values" in report and "fallbacks: 0" in report


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "merge"}, "method is merge, but Flux .* Set method to auto or kv_downsample"),
        ({"method": "local_merge"}, "method is local_merge, but Flux"),
        ({"method": "auto", "merge_mlp": True}, "merge_mlp cannot be used with"),
        ({"method": "auto", "merge_crossattn": True}, "merge_crossattn cannot be used with"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(studio, zoo, settings, message):
    with pytest.raises(Exception, match=message):
        studio.tome(zoo("flux"), **settings)


def test_a_subclass_may_lay_out_its_tokens_otherwise(studio, zoo):
    model = build("wan")
    network = model.model.diffusion_model
    network.__class__ = type("OtherWan", (type(network),), {"__module__": "comfy.ldm.wan.model_other"})
    with pytest.raises(Exception, match="cannot merge tokens in WAN21 .OtherWan.: it puts references.* It works with"):
        studio.tome(model, **HALVES)


def test_the_table_names_all_families(studio):
    from paceline.optimizers.families.table import FAMILIES
    from update_readme import families_table

    table = families_table()
    for family in FAMILIES:
        if family.tokens is not None:
            assert f"| {family.tokens.models or family.name} | kv_downsample, auto |" in table
        elif not family.unets:
            assert f"| {family.name} | none |" in table
    for name in ("SD 1.x", "SD 2.x", "SDXL refiner", "SVD", "HunyuanDiT", "all others"):
        assert name in table
    assert {line.count("|") for line in table.splitlines()} == {5}


@pytest.mark.parametrize("name", NAMES)
def test_networks_are_the_classes_that_families_name(studio, zoo, name):
    from paceline.optimizers.families import find_family

    family = find_family(zoo(name).model.diffusion_model)
    assert family is not None and family.tokens is not None
