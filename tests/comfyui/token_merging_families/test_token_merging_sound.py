"""Apply ToMe on diffusion transformers that draw a video and its sound at once."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from cases import often
from comfy_host.transformers import WITH_SOUND
from distances import close
from sound_calls import COLUMNS, CONDITIONS, FRAMES, ROWS, SOUND, VIDEO, guided, random, sample
from transformer_calls import HALVES, TEXT, every_second, left_alone, reduced_as

NAMES = list(WITH_SOUND)
GUIDED = [("ltx", 0.5), ("ltx2", 1.0), ("ltx", 1.0), ("ltx2", 0.5)]
KEPT = FRAMES * (ROWS // 2 + 1) * (COLUMNS // 2 + 1)


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


def checked(studio, name, model, override, sizes, **more):
    said = "active in 2 of 2 blocks", f"{sizes[0]} -> {sizes[1]} keys and values"
    reduced_as(studio, model, override, partial(sample, name, **more), *said)


@pytest.mark.parametrize("conditions", often(["none", "first and last frame", "as many as the video"], CONDITIONS))
def test_rows_and_columns_of_the_video_are_left_out_and_nothing_else(studio, zoo, conditions):
    more, tokens = CONDITIONS[conditions]
    before = TEXT + tokens + SOUND
    checked(studio, "minimax_h3", zoo("minimax_h3"), thinned(before), (before + VIDEO, before + KEPT), **more)


def test_sound_and_what_joins_it_with_the_video_are_left_alone(studio, zoo):
    checked(studio, "ltx2", zoo("ltx2"), thinned(0), (VIDEO, KEPT))


def test_a_reference_of_sound_has_calls_of_its_own(studio, zoo):
    reference = {"ref_audio": {"tokens": random(1, 7, 128)}}
    checked(studio, "ltx2", zoo("ltx2"), thinned(0), (VIDEO, KEPT), **reference)


@pytest.mark.parametrize(("name", "strength"), often(GUIDED[:2], GUIDED, several=True))
def test_guide_frames_all_stay(studio, zoo, name, strength):
    guides, frames = ROWS * COLUMNS, FRAMES - 1
    sizes = (VIDEO, frames * (ROWS // 2 + 1) * (COLUMNS // 2 + 1) + guides)
    checked(studio, name, zoo(name), thinned(0, frames, guides), sizes, **guided(name, strength, 0.0))


@pytest.mark.parametrize(("name", "strength"), often(GUIDED[:2], GUIDED, several=True))
def test_guides_with_tokens_left_out_leave_the_calls_alone_and_are_counted(studio, zoo, name, strength):
    mask = torch.zeros(ROWS, COLUMNS)
    mask[::2] = -1.0
    draw = partial(sample, name, **guided(name, strength, mask))
    left_alone(studio, zoo(name), draw, "not active in any of 2 blocks", "240 tokens instead of 288")


def test_video_and_sound_of_one_size_cannot_be_told_apart(studio, zoo):
    draw = partial(sample, "ltx2", ref_audio={"tokens": random(1, VIDEO - SOUND, 128)})
    left_alone(studio, zoo("ltx2"), draw, "have the same number of tokens")


@pytest.mark.parametrize("name", NAMES)
def test_odd_sizes_that_the_network_pads(studio, zoo, name):
    model = studio.tome(zoo(name), **HALVES)
    plain, reduced = (sample(name, one, size=(7.5, 11.5)) for one in (zoo(name), model))
    assert reduced.isfinite().all() and reduced.shape == plain.shape and not close(reduced, plain)
    assert "fallbacks: 0" in studio.report(model)


def test_tokens_that_another_node_adds_leave_the_calls_alone_and_are_counted(studio, zoo):
    from comfy.patcher_extension import WrappersMP

    def one_more(executor, x, timestep, context, *args, **kwargs):
        return executor(x, timestep, torch.cat([context, context[:, :1]], dim=1), *args, **kwargs)

    model = zoo("minimax_h3").clone()
    model.add_wrapper_with_key(WrappersMP.DIFFUSION_MODEL, "test", one_more)
    draw = partial(sample, "minimax_h3")
    left_alone(studio, model, draw, "not active in any of 2 blocks", "tokens added by another node")
