"""Verdicts on planted faults: models that are wrong somewhere, slower or faster by a known amount, or equal.

Each is judged some times; a wrong verdict is one that claims what is not so. ``make trust`` judges a thousand of each.
"""

from __future__ import annotations

import random

import planted
import pytest
from cases import often
from paceline.workbench.measurement.speedup import measure_speedup
from paceline.workbench.measurement.verdict import bound, settled
from planted import FALSE, MACHINES, judged, pictures, slightly_off, verdicts

RUNS, PICTURES = 60, 8

PLANS = ((3, 0), (5, 0), (10, 0), (9, 3))
ALL = [(name, *plan) for name in MACHINES for plan in PLANS]
USUAL = [(name, *plan) for name, plan in zip(MACHINES, [*PLANS[::-1], *PLANS], strict=False)]
"""Each machine once, and each plan at least once."""


@pytest.mark.parametrize(("name", "rounds", "least"), often(USUAL, ALL, several=True))
def test_a_model_that_is_as_fast_is_not_called_faster_or_slower(name, rounds, least):
    """With ``least`` it is looked at after each round from there on."""
    found = verdicts(1.0, rounds, name, 3 * RUNS, least)
    assert found["faster"] <= 0.03 * 3 * RUNS and found["faster"] + found["slower"] <= 0.05 * 3 * RUNS
    if name == "quiet":
        assert found["no_effect"] > 0.5 * 3 * RUNS, "said where it can be said"


@pytest.mark.parametrize(("name", "rounds", "least"), often(USUAL, ALL, several=True))
@pytest.mark.parametrize(("gain", "claim"), [(1.03, "faster"), (1 / 1.03, "slower")])
def test_three_percent_are_never_the_same_or_their_opposite(name, rounds, least, gain, claim):
    found = verdicts(gain, rounds, name, RUNS, least)
    assert sum(found[state] for state in FALSE[gain]) <= 0.05 * RUNS
    if name == "quiet":
        assert found[claim] > 0.5 * RUNS


def test_a_model_that_sleeps_is_slower_and_one_that_sleeps_once_is_not_judged_by_that():
    """A pause in every step counts; one in a single run makes it uncertain and does not turn the verdict around."""
    for seed in range(RUNS):
        dice = random.Random(seed)
        baseline = [dice.lognormvariate(0, 0.01) for _ in range(5)]
        assert measure_speedup(baseline, [seconds + 0.2 for seconds in baseline]).slower
        faster = [seconds / 1.5 for seconds in baseline]
        faster[dice.randrange(5)] += 5
        found = measure_speedup(baseline, faster)
        assert not found.slower and not found.same


def test_rounding_is_hardly_visible():
    assert all(map(planted.rounding_is_no_fault, range(PICTURES)))


def test_further_pictures_stay_below_what_is_said_of_them():
    """Differences that vary between seeds as normal logarithms do: of 40 more pictures about one is above."""
    dice = random.Random(1)
    drawn = [[dice.lognormvariate(0, 0.7) for _ in range(6)] for _ in range(4000)]
    above = sum(shares[5] > bound(shares[:5]) for shares in drawn)
    assert above < 4000 / 40 * 1.2


@pytest.mark.parametrize(
    ("shares", "clear"),
    [
        ([0.02, 0.021, 0.02, 0.019], False),  # four pictures
        ([0.02, 0.021, 0.02, 0.019, 0.02], True),
        ([0.02, 0.04, 0.01, 0.08, 0.02], False),  # the next one could be visible
        ([0.2, 0.21, 0.19, 0.2, 0.2], True),
        ([0.2, 0.4, 0.1, 0.2, 0.3], False),  # or another picture
        ([0.02, 0.6], True),  # which one is enough for
        ([0.0, 0.0, 0.0, 0.0, 0.0], True),
        ([0.0, 0.0, 0.0, 0.0, 0.02], False),
    ],
)
def test_when_the_worst_picture_is_clear(shares, clear):
    assert settled(shares) == clear


def test_a_setting_that_ruins_one_seed_of_five_is_found_out_and_the_picture_is_named():
    assert sum(map(planted.one_seed_is_found, range(PICTURES))) >= 0.95 * PICTURES


@pytest.mark.parametrize("batch", [2, *(pytest.param(size, marks=pytest.mark.thorough) for size in (7, 16))])
def test_a_model_that_is_wrong_in_one_picture_of_a_batch_is_found_out_and_the_picture_is_named(batch):
    assert all(planted.one_picture_is_found(seed, batch) for seed in range(PICTURES))


@pytest.mark.parametrize("frames", [5, pytest.param(33, marks=pytest.mark.thorough)])
def test_a_model_that_is_wrong_in_one_frame_is_found_out_and_the_frame_is_named(frames):
    assert sum(planted.one_frame_is_found(seed, frames) for seed in range(PICTURES)) >= 0.95 * PICTURES


@pytest.mark.parametrize(
    "found",
    [
        planted.one_second_of_the_sound_is_found,
        planted.the_latent_of_the_sound_is_found,
        planted.rounding_of_the_sound_is_no_fault,
    ],
)
def test_a_model_that_is_wrong_in_its_sound_only_is_found_out(found):
    assert sum(map(found, range(PICTURES))) >= 0.95 * PICTURES


def test_the_frame_and_the_video_are_named():
    baseline, other = pictures(1, 6), pictures(3, 6)
    drawn = slightly_off(baseline, 1)
    drawn[4] = pictures(2)[0]
    found = judged(drawn, baseline, other, frames=3)
    assert "of frame 2 of video 2 is larger than" in found.text


def test_a_model_that_is_wrong_in_one_region_is_not_called_hardly_visible_and_said_to_be():
    assert sum(map(planted.one_region_is_visible, range(PICTURES))) >= 0.95 * PICTURES


def test_a_fault_of_a_single_pixel_is_not_called_identical():
    assert all(map(planted.one_pixel_is_a_difference, range(PICTURES)))
