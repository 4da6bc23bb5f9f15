"""Apply ToMe on diffusion transformers that draw a video and its sound at once."""

from __future__ import annotations

import pytest
import torch
from comfy_host import in_process
from comfy_host.transformers import WITH_SOUND, conditioning, latent
from distances import close
from transformer_calls import HALVES, TEXT, every_second, with_override

NAMES = list(WITH_SOUND)
FRAMES, ROWS, COLUMNS, SOUND = 3, 8, 12, 10
VIDEO = FRAMES * ROWS * COLUMNS
KEPT = FRAMES * (ROWS // 2 + 1) * (COLUMNS // 2 + 1)


def random(*size):
    return torch.randn(size, generator=torch.Generator().manual_seed(3))


def image(height=16, width=24):
    return {"kind": "image", "latent_h": height, "latent_w": width, "latent": random(1, 24, 1, height, width)}


def sound(frames):
    return {"kind": "audio", "ref_audio_t": frames, "audio_latent": random(1, 32, 2, frames)}


def video_with_sound():
    size = {"latent_t": 3, "latent_h": 8, "latent_w": 4, "latent": random(1, 24, 3, 8, 4)}
    return {"kind": "video_audio", **size, "ref_audio_t": 4, "audio_latent": random(1, 32, 2, 4)}


def keyframe(index):
    return {"resolved_frame_index": index, "latent": random(1, 24, 1, 16, 24)}


CONDITIONS = {
    "none": ({}, 0),
    "first and last frame": ({"minimax_keyframes": [keyframe(0), keyframe(8)], "minimax_frame_count": 9}, 2 * 96),
    "image and sound": ({"minimax_refs": [image(12, 8), sound(7)]}, 24 + 14),
    "as many as the video": ({"minimax_refs": [image(), image(), image()]}, 288),
    "video with sound": ({"minimax_refs": [video_with_sound()]}, 24 + 8),
}


def sample(name, model, text=TEXT, cfg=7.0, size=(ROWS, COLUMNS), masks=None, **more):
    """Return video and sound, flat, one behind the other; ``size`` is in tokens."""
    positive, negative = (conditioning(name, text, seed=seed, **more) for seed in (1, 2))
    patch = 2 if name == "minimax_h3" else 1
    samples = latent(name, *(round(side * patch) for side in size))
    chosen = samples if masks is None else {"samples": samples, "noise_mask": masks}
    drawn = in_process.sample(model, positive, negative, chosen, 7, 1, cfg, scheduler="simple")
    return torch.cat([stream.flatten() for stream in drawn.unbind()])


def thinned(before, frames=FRAMES, behind=0):
    """An override that leaves out rows and columns of the video, which stands behind ``before`` tokens."""

    def override(func, q, k, v, heads, mask=None, skip_reshape=False, **kwargs):
        axis = 2 if skip_reshape else 1
        if k.shape[axis] == before + frames * ROWS * COLUMNS + behind and (q.shape == k.shape or mask is not None):
            k, v = (every_second(x, before, frames, ROWS, COLUMNS, axis) for x in (k, v))
            if mask is not None:
                mask = every_second(mask, before, frames, ROWS, COLUMNS, mask.ndim - 1)
        return func(q, k, v, heads, mask=mask, skip_reshape=skip_reshape, **kwargs)

    return override


def checked(studio, name, plain_model, override, sizes, **more):
    """Check that Apply ToMe gives what ``override`` does, and nothing once it is gone or has a ratio of 0."""
    plain, model = sample(name, plain_model, **more), studio.tome(plain_model, **HALVES)
    reduced = sample(name, model, **more)
    assert plain.isfinite().all() and not close(reduced, plain)
    assert close(reduced, sample(name, with_override(plain_model, override), **more))
    report = studio.report(model)
    assert "active in 2 of 2 blocks" in report and "fallbacks: 0" in report
    assert f"{sizes[0]} -> {sizes[1]} keys and values" in report
    assert torch.equal(sample(name, plain_model, **more), plain)
    assert torch.equal(sample(name, studio.tome(plain_model, **HALVES | {"ratio": 0.0}), **more), plain)


@pytest.mark.parametrize("conditions", CONDITIONS)
def test_rows_and_columns_of_the_video_are_left_out_and_nothing_else(studio, zoo, conditions):
    more, tokens = CONDITIONS[conditions]
    before = TEXT + tokens + SOUND
    checked(studio, "minimax_h3", zoo("minimax_h3"), thinned(before), (before + VIDEO, before + KEPT), **more)


def test_sound_and_what_joins_it_with_the_video_are_left_alone(studio, zoo):
    checked(studio, "ltx2", zoo("ltx2"), thinned(0), (VIDEO, KEPT))


def test_a_reference_of_sound_has_calls_of_its_own(studio, zoo):
    reference = {"ref_audio": {"tokens": random(1, 7, 128)}}
    checked(studio, "ltx2", zoo("ltx2"), thinned(0), (VIDEO, KEPT), **reference)


def guided(name, strength, mask):
    """Return conditioning and masks that make the last frame a guide with the tokens where ``mask`` is not below 0."""
    from comfy.nested_tensor import NestedTensor

    masks = torch.ones(1, 1, FRAMES, ROWS, COLUMNS)
    masks[:, :, -1] = mask
    more = {"keyframe_idxs": random(1, 3, ROWS * COLUMNS, 2).abs() * 8}
    entry = {"strength": strength, "pre_filter_count": ROWS * COLUMNS, "latent_shape": (1, ROWS, COLUMNS)}
    both = NestedTensor((masks, torch.ones(1, 8, SOUND, 16))) if name == "ltx2" else masks
    return more | {"guide_attention_entries": [entry | {"pixel_mask": None}], "masks": both}


@pytest.mark.parametrize("strength", [1.0, 0.5])
@pytest.mark.parametrize("name", ["ltx", "ltx2"])
def test_guide_frames_all_stay(studio, zoo, name, strength):
    guides, frames = ROWS * COLUMNS, FRAMES - 1
    sizes = (VIDEO, frames * (ROWS // 2 + 1) * (COLUMNS // 2 + 1) + guides)
    checked(studio, name, zoo(name), thinned(0, frames, guides), sizes, **guided(name, strength, 0.0))


@pytest.mark.parametrize("strength", [1.0, 0.5])
@pytest.mark.parametrize("name", ["ltx", "ltx2"])
def test_guides_with_tokens_left_out_leave_the_calls_alone_and_are_counted(studio, zoo, name, strength):
    mask = torch.zeros(ROWS, COLUMNS)
    mask[::2] = -1.0
    model, more = studio.tome(zoo(name), **HALVES), guided(name, strength, mask)
    assert torch.equal(sample(name, model, **more), sample(name, zoo(name), **more))
    report = studio.report(model)
    assert "not active in any of 2 blocks" in report and "240 tokens instead of 288" in report


def test_video_and_sound_of_one_size_cannot_be_told_apart(studio, zoo):
    model = studio.tome(zoo("ltx2"), **HALVES)
    same = {"ref_audio": {"tokens": random(1, VIDEO - SOUND, 128)}}
    assert torch.equal(sample("ltx2", model, **same), sample("ltx2", zoo("ltx2"), **same))
    assert "have the same number of tokens" in studio.report(model)


@pytest.mark.parametrize("name", NAMES)
def test_networks_are_the_classes_that_families_name(studio, zoo, name):
    from paceline.optimizers.families import find_family

    family = find_family(zoo(name).model.diffusion_model)
    assert family is not None and family.tokens is not None


@pytest.mark.parametrize("name", NAMES)
def test_odd_sizes_that_the_network_pads(studio, zoo, name):
    model = studio.tome(zoo(name), **HALVES)
    plain, reduced = (sample(name, one, size=(7.5, 11.5)) for one in (zoo(name), model))
    assert reduced.isfinite().all() and reduced.shape == plain.shape and not close(reduced, plain)
    assert "fallbacks: 0" in studio.report(model)


@pytest.mark.parametrize("name", NAMES)
def test_any_order_with_an_attention_backend(studio, zoo, name):
    inside = studio.attention(studio.tome(zoo(name), **HALVES), "vanilla")
    outside = studio.tome(studio.attention(zoo(name), "vanilla"), **HALVES)
    assert torch.equal(sample(name, inside), sample(name, outside))
    assert all("fallbacks: 0" in studio.report(one) for one in (inside, outside))


@pytest.mark.parametrize(
    ("place", "matters"), [(0, True), (TEXT, True), (TEXT + SOUND, True), (TEXT + SOUND + 1, False)]
)
def test_every_key_of_text_and_sound_still_matters(studio, zoo, place, matters):
    """The last case is a video token that is left out: changing its key and value changes nothing else."""

    def changed(func, q, k, v, *args, **kwargs):
        k, v = k.clone(), v.clone()
        v[:, :, place] += 10.0
        return func(q, k, v, *args, **kwargs)

    plain = sample("minimax_h3", studio.tome(zoo("minimax_h3"), **HALVES), cfg=1.0)
    result = sample("minimax_h3", studio.tome(with_override(zoo("minimax_h3"), changed), **HALVES), cfg=1.0)
    assert close(result, plain) is not matters


def test_tokens_that_another_node_adds_leave_the_calls_alone_and_are_counted(studio, zoo):
    from comfy.patcher_extension import WrappersMP

    def one_more(executor, x, timestep, context, *args, **kwargs):
        return executor(x, timestep, torch.cat([context, context[:, :1]], dim=1), *args, **kwargs)

    name = "minimax_h3"
    model = zoo(name).clone()
    model.add_wrapper_with_key(WrappersMP.DIFFUSION_MODEL, "test", one_more)
    reduced = studio.tome(model, **HALVES)
    assert torch.equal(sample(name, reduced), sample(name, model))
    report = studio.report(reduced)
    assert "not active in any of 2 blocks" in report and "tokens added by another node" in report
