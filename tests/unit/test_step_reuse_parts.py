"""Reuse Steps judges each stream and each frame of a latent: what is ruined in one of them must not hide in the rest.

A large part of the latent follows a smooth path. In a small one (the sound of a video, one of its frames) the path
decides what comes out: the prediction is an oscillation of what it is given.
"""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from paceline.optimizers.in_diffusers.reused_run import frames_of
from paceline.optimizers.step_reuse.long_rule import LongRule
from paceline.optimizers.step_reuse.parts import rms, split_for, stream_rms
from paceline.optimizers.step_reuse.reuse_settings import StepReuseSettings
from solving import drive

STEPS, BUDGET, RUNS = 30, 0.15, 40
BESIDE = [*torch.linspace(math.log(10.0), math.log(0.03), STEPS).exp().tolist(), 0.0]
LEVELS = [level / (1 + level) for level in BESIDE]  # of a flow, as videos with sound are
WITH_SOUND = [(1, 4, 5, 25, 40), (1, 8, 25)]
VIDEO = (1, 4, 41, 8, 8)


def packed():
    """Return shape, split and the place of the sound of a video that ComfyUI packs with it: 200 of 20,200 elements."""
    return (1, 1, 20_200), split_for(WITH_SOUND), (..., slice(20_000, None))


def video(frame):
    """Return the same of a video of 41 frames, and the place of one of them."""
    return VIDEO, split_for([VIDEO]), (slice(None), slice(None), frame)


def drawn(shape, place, seed, **rule):
    """Return the part at ``place`` as Euler draws it, and the rule."""

    def predict(x, sigma):
        picture, noise = x / (1 - sigma), sigma / (1 - sigma)  # the picture at its own size
        found = picture / (1 + noise**2)
        found[place] = torch.sin(7 * picture[place] / (1 + noise))
        return found

    settings = StepReuseSettings(budget=rule.pop("budget", 0.0))
    rule = LongRule(settings, LEVELS, solver="euler", flow=True, **rule)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * LEVELS[0]
    return drive(rule, predict, LEVELS, x=x)[1][place]


def distance(shape, split, place, seed):
    """Return how far the part at ``place`` moved, as a share of a seed change there."""
    found = drawn(shape, place, seed, budget=BUDGET, split=split)
    plain, other = (drawn(shape, place, number) for number in (seed, seed + 5000))
    return float((found - plain).norm() / (other - plain).norm())


CASES = {"sound": packed, "one of 41 frames": partial(video, 7)}


@pytest.mark.parametrize("case", CASES)
def test_a_part_whose_path_decides_is_kept_within_the_budget(case):
    found = [distance(*CASES[case](), seed) for seed in range(RUNS)]
    assert sum(share <= BUDGET for share in found) >= 38, sorted(found)[-6:]


def test_frames_are_held_against_their_stream():
    """Two items of a batch; the sound has a scale of its own."""
    shapes = [(2, 3, 4, 5, 6), (2, 7, 8)]
    change, sound = torch.randn(shapes[0]), 100 * torch.randn(shapes[1])
    change[:, :, 1] *= 0.001
    split = split_for(shapes)
    together = torch.cat([change.flatten(1), sound.flatten(1)], 1)[:, None]
    frames, scales = rms(split(together)).view(2, 5), stream_rms(split(together)).view(2, 5)
    assert torch.allclose(frames[:, :4], change.square().mean((1, 3, 4)).sqrt())
    assert torch.allclose(scales[:, :4], change.square().mean((1, 2, 3, 4)).sqrt()[:, None].expand(2, 4))
    assert torch.equal(frames[:, 4], scales[:, 4]) and torch.allclose(frames[:, 4], sound.square().mean((1, 2)).sqrt())


@pytest.mark.parametrize(
    ("shape", "channels", "frames", "expected"),
    [
        ((2, 16, 5, 8, 9), 16, 0, (2, 5, 16, 8, 9)),
        ((2, 5, 16, 8, 9), 16, 0, (2, 5, 16, 8, 9)),  # CogVideoX, Stable Video Diffusion
        ((2, 60, 16), 16, 5, (2, 5, 12, 16)),  # LTX-Video's tokens
        ((2, 60, 16), 16, 7, (2, 1, 60, 16)),
        ((2, 16, 8, 9), 16, 0, (2, 1, 16, 8, 9)),
    ],
)
def test_frames_of_the_latents_of_pipelines(shape, channels, frames, expected):
    (found,) = frames_of(torch.zeros(shape), channels, frames)
    assert tuple(found.shape) == expected
