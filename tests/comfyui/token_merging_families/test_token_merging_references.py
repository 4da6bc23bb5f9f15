"""Apply ToMe on diffusion transformers with reference images, masks, and calls that contradict what is known."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from cases import often
from comfy_host import in_process
from comfy_host.transformers import build, conditioning, latent
from distances import close
from transformer_calls import HALVES, TEXT, every_second, grid, left_alone, oracle, reduced_as, sample, with_override

REFERENCES = [(16, 24), (12, 8)]


def with_references(name):
    return {"reference_latents": [torch.randn_like(latent(name, *size)) for size in REFERENCES]}


THINNED = [
    ("flux", "offset"),
    ("flux2", "index"),
    ("qwen_image", "index_timestep_zero"),
    ("flux", "index"),
    ("flux", "uxo"),
    ("flux2", "index_timestep_zero"),
    ("qwen_image", "index"),
]


@pytest.mark.parametrize(("name", "method"), often(THINNED[:3], THINNED, several=True))
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
    after = text + sum(frames * (rows // 2 + 1) * (columns // 2 + 1) for _, frames, rows, columns, _ in pictures)
    draw = partial(sample, name, **references)
    reduced_as(studio, zoo(name), override, draw, f"{before} -> {after} keys and values")


def noise(*size):
    return torch.randn(size, generator=torch.Generator().manual_seed(3))


def method(name):
    return lambda model: with_references(model) | {"reference_latents_method": name}


def images_of_hidream(_):
    return {"reference_latents": [noise(1, 64, 96, 3).sigmoid()]}


def poses(_):
    """Two references, poses at half the size, and masks of who is who."""
    return {
        "reference_latents": [noise(1, 16, 1, 16, 24), noise(1, 16, 1, 16, 24)],
        "pose_video_latent": noise(1, 16, 3, 8, 12),
        "ref_mask_28ch": noise(1, 5, 28, 16, 24),
        "driving_mask_28ch": noise(1, 3, 28, 8, 12),
    }


def person_and_voice(_):
    return {"reference_latents": [noise(1, 16, 1, 16, 24)], "audio_embed": noise(1, 3, 8, 5, 1280)}


def face(_):
    return {"pose_video_latent": noise(1, 16, 2, 16, 24), "face_video_pixels": noise(1, 3, 4, 8, 8)}


def slots(name):
    return with_references(name) | {"image_slots": [5, 12]}


PICTURES = 8 * 12 + 6 * 4
"""Tokens of the references in patches of 2."""

# The model, its settings, what is given to it, and how many more tokens stand before the image and behind it.
STAYS = {
    "krea2 left out": ("krea2", {}, method(None), 0, 0),
    "krea2 index": ("krea2", {}, method("index"), 0, PICTURES),
    "krea2 index_timestep_zero": ("krea2", {}, method("index_timestep_zero"), 0, PICTURES),
    "mage_flow": ("mage_flow", {}, with_references, 0, 4 * PICTURES),
    # Behind the text, where a call of the first reference has as many tokens as text and image, and within the text.
    "qwen_image21 behind": ("qwen_image21", {}, with_references, 4 * PICTURES, 0),
    "qwen_image21 within": ("qwen_image21", {}, slots, 4 * PICTURES, 0),
    "omnigen2": ("omnigen2", {}, with_references, PICTURES, 0),
    "boogu": ("boogu", {}, with_references, PICTURES, 0),
    "joyimage": ("joyimage", {}, with_references, 0, PICTURES),
    # It is shown the picture twice: to read, with a mark on each side, and in patches.
    "hidream_o1": ("hidream_o1", {}, images_of_hidream, 126 + 2, 126),
    "wan, Fun": ("wan", {"in_dim_ref_conv": 16}, lambda _: {"reference_latents": [noise(1, 16, 1, 16, 24)]}, 96, 0),
    "wan left out": ("wan", {}, lambda _: {"reference_latents": [noise(1, 16, 1, 16, 24)]}, 0, 0),
    "wan, Phantom": ("wan", {}, lambda _: {"time_dim_concat": noise(1, 16, 2, 16, 24)}, 0, 2 * 96),
    "wan, Bernini": ("wan", {}, lambda _: {"context_latents": [noise(1, 16, 1, 12, 8)]}, 0, 24),
    "wan_humo": ("wan_humo", {"in_dim": 16}, person_and_voice, 0, 96),
    "wan_dancer": ("wan_dancer", {}, lambda _: {"audio_embed": noise(1, 12, 35)}, 0, 0),
    "wan_scail": ("wan_scail", {}, poses, 2 * 96, 3 * 24),
    "wan_animate": ("wan_animate", {"num_layers": 5}, face, 0, 0),
}


# Each kind of references twice: latents, lists of them and tokens, before the image and behind it.
OFTEN = ("krea2 index", "mage_flow", "omnigen2", "hidream_o1", "wan, Fun", "wan, Phantom", "wan_scail", "wan_animate")


@pytest.mark.parametrize("title", often(OFTEN, STAYS))
def test_what_stands_beside_the_image_all_stays(studio, title):
    name, settings, given, before, behind = STAYS[title]
    plain_model, more = build(name, **settings), given(name)
    if given is face:  # the network that reads faces takes minutes on a processor
        encoder = plain_model.model.diffusion_model.motion_encoder
        encoder.get_motion = lambda pixels: pixels.flatten(1)[:, :64].repeat(1, 8)
    text, frames, rows, columns, after = grid(name)
    image, start = frames * rows * columns, text + before
    tokens = start + image + behind + after

    def override(func, q, k, v, heads, mask=None, attn_precision=None, skip_reshape=False, **kwargs):
        axis = 2 if skip_reshape else 1
        if k.shape[axis] == tokens:
            k, v = (every_second(x, start, frames, rows, columns, axis) for x in (k, v))
        return func(q, k, v, heads, mask, attn_precision, skip_reshape, **kwargs)

    kept = tokens - image + frames * (rows // 2 + 1) * (columns // 2 + 1)
    reduced_as(studio, plain_model, override, partial(sample, name, **more), f"{tokens} -> {kept} keys and values")


def test_a_mask_over_the_text_and_a_call_without_text(studio, zoo):
    """Ideogram 4 masks queries and keys; without text, its tokens are the image's alone."""
    mask = torch.ones(1, TEXT, dtype=torch.long)
    mask[:, :5] = 0
    positive, negative = conditioning("ideogram4", TEXT, attention_mask=mask), [[None, {}]]

    def drawn(chosen):
        return in_process.sample(chosen, positive, negative, latent("ideogram4"), 7, 1, 7.0, scheduler="simple")

    image, kept = 16 * 24, 9 * 13

    def override(func, q, k, v, heads, mask=None, **kwargs):
        text = k.shape[2] - image
        k, v = (every_second(x, text, 1, 16, 24, 2) for x in (k, v))
        mask = None if mask is None else every_second(mask, text, 1, 16, 24, 3)
        return func(q, k, v, heads, mask=mask, **kwargs)

    of_the_last_call = f"{image} -> {kept}"
    reduced_as(studio, zoo("ideogram4"), override, drawn, "active in 2 of 2 blocks", of_the_last_call)


@pytest.mark.parametrize("name", ["hidream_o1", "qwen_image21"])
def test_keys_of_the_text_that_are_kept_from_step_to_step(studio, name):
    """The text is computed in the first step; afterwards the queries are those of the image."""
    model = studio.tome(build(name), **HALVES)
    override = with_override(build(name), oracle(name))
    assert close(sample(name, model, steps=3), sample(name, override, steps=3))
    report = studio.report(model)
    assert "active in 2 of 2 blocks" in report and "fallbacks: 0" in report


@pytest.mark.parametrize("name", ["wan_animate2"])
def test_frames_that_look_at_all_frames_and_at_one_of_the_poses(studio, zoo, name):
    """The poses' own attention stays whole, and so does the reference, which alone looks at no poses."""
    poses = {"pose_video_latent": noise(1, 16, 2, 16, 24)}

    def override(func, q, k, v, heads, **kwargs):
        if k.shape[1] in (3 * 96, 4 * 96):
            k, v = (every_second(x, 96, 2, 8, 12, 1) for x in (k, v))
        return func(q, k, v, heads, **kwargs)

    reduced_as(studio, zoo(name), override, partial(sample, name, **poses), "active in 2 of 2 blocks", "384 -> 262")


def test_a_refiner_with_as_many_tokens_as_text_and_image_is_left_alone(studio, zoo):
    """OmniGen2's own attention of its references, here 20 + 16 of them."""
    reference, name = {"reference_latents": [noise(1, 16, 12, 12)]}, "omnigen2"
    model = studio.tome(zoo(name), **HALVES)
    reduced = sample(name, model, 8, 8, **reference)
    assert reduced.isfinite().all() and not close(reduced, sample(name, zoo(name), 8, 8, **reference))
    report = studio.report(model)
    assert "have the same number of tokens" in report and "72 -> " in report


def test_a_call_that_could_be_the_fusion_of_the_text_is_left_alone(studio, zoo):
    """One text token and 2 image tokens are as many as Krea 2's text layers here."""
    draw = partial(sample, "krea2", height=2, width=4, text=1)
    left_alone(studio, zoo("krea2"), draw, "over other tokens have the same number of tokens")


def test_references_among_the_text_leave_the_calls_alone_and_are_counted(studio, zoo):
    draw = partial(sample, "z_image", **with_references("z_image"))
    why = "reference images, or tokens added by another node"
    left_alone(studio, zoo("z_image"), draw, "not active in any of", why)


def test_self_attention_that_could_be_attention_to_the_text_is_left_alone(studio, zoo):
    draw = partial(sample, "wan", height=8, width=8, text=48)
    left_alone(studio, zoo("wan"), draw, "over other tokens have the same number of tokens")


@pytest.mark.parametrize("name", ["qwen_image", "hunyuan_video"])
def test_a_mask_is_reduced_with_the_keys(studio, zoo, name):
    mask = torch.ones(1, TEXT, dtype=torch.long)
    mask[:, 15:] = 0
    draw = partial(sample, name, cfg=1.0)  # one pass only, because HunyuanVideo's mask takes no batches
    reduced_as(studio, zoo(name), oracle(name), partial(draw, attention_mask=mask))
    model = studio.tome(zoo(name), **HALVES)
    assert not close(draw(model, attention_mask=mask), draw(model))


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
    call = ModelCall(zoo("flux").model, torch.ones(1), options, shapes)
    activity = call.activities[technique.kind] = Activity()
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
