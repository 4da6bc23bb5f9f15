"""Apply ToMe on diffusion transformers with reference images, masks, and calls that contradict what is known."""

from __future__ import annotations

import pytest
import torch
from comfy_host.transformers import latent
from distances import close
from transformer_calls import HALVES, TEXT, every_second, grid, oracle, sample, with_override

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


@pytest.mark.parametrize(
    ("name", "method"),
    [("krea2", None), ("krea2", "index"), ("krea2", "index_timestep_zero"), ("mage_flow", None)],
)
def test_reference_images_that_all_stay(studio, zoo, name, method):
    """Krea 2 looks at references only with a method; without one they are not among the tokens."""
    text, frames, rows, columns, _ = grid(name)
    image = frames * rows * columns
    seen = [] if (name, method) == ("krea2", None) else [grid(name, *size) for size in REFERENCES]
    before = text + image + sum(frames * rows * columns for _, frames, rows, columns, _ in seen)

    def override(func, q, k, v, heads, mask=None, attn_precision=None, skip_reshape=False, **kwargs):
        axis = 2 if skip_reshape else 1
        if k.shape[axis] == before:
            k, v = (every_second(x, text, frames, rows, columns, axis) for x in (k, v))
        return func(q, k, v, heads, mask, attn_precision, skip_reshape, **kwargs)

    references = with_references(name) | {"reference_latents_method": method}
    model = studio.tome(zoo(name), **HALVES)
    plain, reduced = sample(name, zoo(name), **references), sample(name, model, **references)
    assert close(reduced, sample(name, with_override(zoo(name), override), **references))
    assert not close(reduced, plain)
    after = before - image + frames * (rows // 2 + 1) * (columns // 2 + 1)
    report = studio.report(model)
    assert f"{before} -> {after} keys and values" in report and "fallbacks: 0" in report
    assert torch.equal(sample(name, zoo(name), **references), plain)


def test_a_call_that_could_be_the_fusion_of_the_text_is_left_alone(studio, zoo):
    """One text token and 2 image tokens are as many as Krea 2's text layers here."""
    model = studio.tome(zoo("krea2"), **HALVES)
    assert torch.equal(sample("krea2", model, 2, 4, text=1), sample("krea2", zoo("krea2"), 2, 4, text=1))
    assert "text and image have the same number of tokens" in studio.report(model)


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
