"""The judge: who draws when, what is said of pictures and times, and its verdicts on planted faults.

Of planted faults a wrong verdict is one that claims what is not so. ``make trust`` judges a thousand of each.
"""

from __future__ import annotations

import random

import planted
import pytest
import torch
from cases import often
from paceline.measure.drawn import Decoded, Drawn, TimedRun
from paceline.measure.evidence import kept_levels
from paceline.measure.measure import MeasurePlan, measure
from paceline.measure.verdict import bound, settled
from paceline.optimizers.core.errors import InvalidSetting
from planted import FALSE, MACHINES, verdicts

STEPS = 20


class Host:
    """Draws noise of its seed: a step takes a second, or ``cost`` of one, and what is left out leaves a stripe."""

    def __init__(self, cost=0.5, change=4):
        self.cost, self.change, self.drawn = cost, change, []

    def __call__(self, side, number, steps):
        self.drawn.append((side, number, steps))
        noise = torch.Generator().manual_seed(number)
        pictures = torch.randint(0, 206, (1, 32, 32, 3), generator=noise).byte()
        pictures[:, : STEPS - steps] += 50
        if side == "optimized":
            pictures[:, :, : self.change * (number + 1)] += 50
        seconds = steps * (self.cost if side == "optimized" else 1.0)
        return Drawn(TimedRun(seconds), show=lambda: Decoded(pictures, torch.ones(len(pictures), dtype=torch.bool)))


def measured(host):
    """As the WebUIs measure: the first seed is drawn before, and shows what the baseline does from run to run."""
    return measure(host, MeasurePlan(STEPS, 3, warm_up=0, controls=("fewer_steps",)))


def test_both_draw_each_seed_in_turn_and_the_baseline_again_with_the_steps_that_fit(reads):
    host = Host()
    found, (before, after) = measured(host), ("baseline", "optimized")
    rounds = [(before, 0), (after, 0), (after, 1), (before, 1), (before, 2), (after, 2)]
    assert host.drawn[:8] == [(who, seed, STEPS) for who, seed in [(before, 0), (after, 0), *rounds]]
    assert host.drawn[8:] == [("fewer_steps", seed, 10) for seed in range(3)]
    reads(found.verdict.text)
    assert (found.unit, found.seconds) == ("sampling", {before: [20.0] * 3, after: [10.0] * 3})
    assert found.evidence.repeat.psnr is None and not found.evidence.same_bits
    assert found.sheet([]).width > 4 * 256


@pytest.mark.parametrize(
    ("steps", "kept", "out"),
    [
        (8, 7, {5}),
        (8, 6, {3, 5}),
        (4, 3, {3}),
        (20, 16, {11, 13, 15, 17}),
        (20, 11, {1, 3, 5, 7, 9, 11, 13, 15, 17}),
        (30, 24, {17, 19, 21, 23, 25, 27}),
        (2, 1, {1}),
    ],
)
def test_which_levels_are_left_out(steps, kept, out):
    assert set(range(steps)) - set(kept_levels(steps, kept)) == out


@pytest.mark.parametrize(("steps", "kept"), [(20, 10), (4, 1), (7, 4)])
def test_where_there_are_not_so_many_late_levels_there_is_no_control(steps, kept):
    assert kept_levels(steps, kept) is None


class Ignoring(Host):
    """A sampler that ignores the number of steps."""

    def __call__(self, side, number, steps):
        return super().__call__(side, number, STEPS)


@pytest.mark.parametrize(
    ("host", "steps", "runs", "drawn"),
    [
        (Host(change=0), STEPS, 3, 8),
        (Host(cost=1.0, change=1), STEPS, 3, 8),
        (Host(), 1, 2, 8 - 2),
        (Host(cost=0.01), STEPS, 2, 8 - 2),
        (Ignoring(), STEPS, 3, 8 + 3),
    ],
    ids=["the same pictures", "not faster", "one step", "no step fits", "other steps than asked"],
)
def test_where_a_control_shows_nothing_there_is_none(reads, host, steps, runs, drawn):
    found = measure(host, MeasurePlan(steps, runs, warm_up=0, controls=("fewer_steps",)))
    assert found.evidence.controls == () and len(host.drawn) == drawn
    reads(found.verdict.text, *found.notes)


@pytest.mark.parametrize("runs", [0, 21, 2.5])
def test_too_few_rounds_and_too_many(runs):
    with pytest.raises(InvalidSetting, match="runs"):
        MeasurePlan(STEPS, runs)


def test_latents_are_compared_where_there_are_no_pictures():
    """Of a video with sound, the stream that moved most counts."""

    def draw(side, number, steps):
        streams = torch.full((2, 4, 4), float(number)), torch.full((2, 8), float(number))
        streams[1][1] += 0.25 * (side == "optimized")
        return Drawn(TimedRun(1.0), streams)

    found = measure(draw, MeasurePlan(STEPS, 3, warm_up=None))
    assert found.evidence.seed.rmse == pytest.approx(2**0.5), "of seeds 1, 1 and 2 apart"
    assert found.verdict.seed_share == pytest.approx(0.25 / 2**0.5) and found.evidence.worst == 1
    assert found.pictures == {} and found.evidence.repeat is None


RUNS, PICTURES = 200, 8

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


@pytest.mark.parametrize("right", planted.FAULTS.values(), ids=planted.FAULTS)
def test_the_verdict_on_wrong_pictures_is_right(right):
    assert all(map(right, range(PICTURES)))
