"""The judge: who draws when, and what is said of the pictures and times."""

from __future__ import annotations

import pytest
import torch
from paceline.core.errors import InvalidSetting
from paceline.workbench.measurement.drawn import Decoded, Drawn, TimedRun
from paceline.workbench.measurement.evidence import kept_levels
from paceline.workbench.measurement.measure import MeasurePlan, measure

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


def test_both_draw_each_seed_in_turn_and_the_baseline_again_with_the_steps_that_fit():
    host = Host()
    found, (before, after) = measured(host), ("baseline", "optimized")
    rounds = [(before, 0), (after, 0), (after, 1), (before, 1), (before, 2), (after, 2)]
    assert host.drawn[:8] == [(who, seed, STEPS) for who, seed in [(before, 0), (after, 0), *rounds]]
    assert host.drawn[8:] == [("fewer_steps", seed, 10) for seed in range(3)]
    assert found.verdict.text == (
        "2.00x faster (2.00 to 2.00); difference is 1/3 of a seed change, 0.4 in picture 3, the worst of 3 pictures; "
        "fewer steps in the same time (10 of 20) would differ 1.1 times as much."
    )
    assert (found.unit, found.seconds) == ("sampling", {before: [20.0] * 3, after: [10.0] * 3})
    assert found.evidence.repeat.psnr is None and not found.evidence.same_bits
    assert found.sheet([]).width > 5 * 256


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


def test_the_same_pictures_need_no_control():
    host = Host(change=0)
    found = measured(host)
    assert found.verdict.text == "2.00x faster (2.00 to 2.00); the pictures are the same in all of their 8 bits."
    assert len(host.drawn) == 8


@pytest.mark.parametrize(("steps", "cost", "notes"), [(1, 0.5, 0), (STEPS, 0.01, 1)])
def test_where_no_step_fits_there_is_no_control(steps, cost, notes):
    found = measure(host := Host(cost), MeasurePlan(steps, 2, warm_up=0))
    assert found.evidence.controls == () and len(host.drawn) == 6 and len(found.notes) == notes
    assert all(note.startswith("fewer steps: no step of the baseline fits") for note in found.notes)
    assert "fewer steps" not in found.verdict.text


def test_a_sampler_that_ignores_the_number_of_steps_has_no_control():
    class Ignoring(Host):
        def __call__(self, side, number, steps):
            return super().__call__(side, number, STEPS)

    found = measured(Ignoring())
    assert found.evidence.controls == ()
    assert found.notes == ["fewer steps: 10 steps took longer than expected, so they are no control here"]


def test_what_is_not_faster_needs_no_control():
    host = Host(cost=1.0, change=1)
    assert measured(host).verdict.text.startswith("No difference in time of more than 3%")
    assert len(host.drawn) == 8


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
    assert found.verdict.seed_share == pytest.approx(0.25 / 2**0.5) and found.evidence.farthest.picture == 2
    assert found.pictures == {} and found.evidence.repeat is None
