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


def sample(name, model, text=TEXT, cfg=7.0, size=(16, 24), **more):
    """Return video and sound, flat, one behind the other."""
    positive, negative = (conditioning(name, text, seed=seed, **more) for seed in (1, 2))
    drawn = in_process.sample(model, positive, negative, latent(name, *size), 7, 1, cfg, scheduler="simple")
    return torch.cat([stream.flatten() for stream in drawn.unbind()])


def thinned(before):
    """An override that leaves out rows and columns of the video, which stands behind ``before`` tokens."""

    def override(func, q, k, v, *args, **kwargs):
        if q.shape[2] == k.shape[2] == before + VIDEO:
            k, v = (every_second(x, before, FRAMES, ROWS, COLUMNS, 2) for x in (k, v))
        return func(q, k, v, *args, **kwargs)

    return override


@pytest.mark.parametrize("conditions", CONDITIONS)
def test_rows_and_columns_of_the_video_are_left_out_and_nothing_else(studio, zoo, conditions):
    more, tokens = CONDITIONS[conditions]
    before = TEXT + tokens + SOUND
    plain = sample("minimax_h3", zoo("minimax_h3"), **more)
    model = studio.tome(zoo("minimax_h3"), **HALVES)
    reduced = sample("minimax_h3", model, **more)
    assert close(reduced, sample("minimax_h3", with_override(zoo("minimax_h3"), thinned(before)), **more))
    assert not close(reduced, plain)
    report = studio.report(model)
    assert "active in 2 of 2 blocks" in report and "fallbacks: 0" in report
    assert f"{before + VIDEO} -> {before + KEPT} keys and values" in report
    assert torch.equal(sample("minimax_h3", zoo("minimax_h3"), **more), plain)
    nothing = studio.tome(zoo("minimax_h3"), **HALVES | {"ratio": 0.0})
    assert torch.equal(sample("minimax_h3", nothing, **more), plain)


@pytest.mark.parametrize("name", NAMES)
def test_networks_are_the_classes_that_families_name(studio, zoo, name):
    from paceline.optimizers.families import find_family

    family = find_family(zoo(name).model.diffusion_model)
    assert family is not None and family.tokens is not None


@pytest.mark.parametrize("name", NAMES)
def test_odd_sizes_that_the_network_pads(studio, zoo, name):
    model = studio.tome(zoo(name), **HALVES)
    plain, reduced = (sample(name, one, size=(15, 23)) for one in (zoo(name), model))
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


@pytest.mark.parametrize("name", NAMES)
def test_tokens_that_another_node_adds_leave_the_calls_alone_and_are_counted(studio, zoo, name):
    from comfy.patcher_extension import WrappersMP

    def one_more(executor, x, timestep, context, *args, **kwargs):
        return executor(x, timestep, torch.cat([context, context[:, :1]], dim=1), *args, **kwargs)

    model = zoo(name).clone()
    model.add_wrapper_with_key(WrappersMP.DIFFUSION_MODEL, "test", one_more)
    reduced = studio.tome(model, **HALVES)
    assert torch.equal(sample(name, reduced), sample(name, model))
    report = studio.report(reduced)
    assert "not active in any of 2 blocks" in report and "tokens added by another node" in report
