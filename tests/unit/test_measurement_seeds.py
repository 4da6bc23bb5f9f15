"""What is measured over several seeds: who draws when, and what is said of the pictures and times."""

from __future__ import annotations

import pytest
import torch
from paceline.core.errors import InvalidSetting
from paceline.workbench.measurement.seeds import Drawn, measure

STEPS = 20


class Host:
    """Draws noise of its seed: a step takes a second, or ``cost`` of one, and what is left out leaves a stripe."""

    def __init__(self, cost=0.5, change=4, batch=1):
        self.cost, self.change, self.batch, self.drawn = cost, change, batch, []

    def __call__(self, optimized, number, steps):
        self.drawn.append((optimized, number, steps))
        noise = torch.Generator().manual_seed(number)
        pictures = torch.randint(0, 206, (self.batch, 32, 32, 3), generator=noise).byte()
        pictures[:, : STEPS - steps] += 50
        if optimized:
            pictures[-1, :, : self.change * (number + 1)] += 50
        return Drawn(pictures, steps * (self.cost if optimized else 1.0))


def test_both_draw_each_seed_in_turn_and_the_baseline_again_with_the_steps_that_fit():
    host = Host()
    found = measure(host, 3, STEPS)
    rounds = [(False, 0), (True, 0), (True, 1), (False, 1), (False, 2), (True, 2)]
    assert host.drawn[:8] == [(who, seed, STEPS) for who, seed in [(False, 0), (True, 0), *rounds]]
    assert host.drawn[8:] == [(False, seed, 10) for seed in range(3)]
    assert found.verdict.text == (
        "2.00x faster (2.00 to 2.00); difference is 1/3 of a seed change, 0.4 in picture 3, the worst of 3 pictures; "
        "fewer steps in the same time (10 of 20) would differ 1.1 times as much."
    )
    assert found.lines[0] == "sampling: baseline 20 s (20 to 20), optimized 10 s (10 to 10); 3 seeds in turn"
    assert "baseline repeated: the same to the last bit" in found.lines[3]
    assert found.sheet.width > 5 * 256


def test_the_same_pictures_need_no_control():
    host = Host(change=0)
    found = measure(host, 3, STEPS)
    assert found.verdict.text == "2.00x faster (2.00 to 2.00); the pictures are the same in all of their 8 bits."
    assert len(host.drawn) == 8


def test_what_is_not_faster_needs_no_control():
    host = Host(cost=1.0, change=1)
    assert measure(host, 3, STEPS).verdict.text.startswith("No difference in time of more than 3%")
    assert len(host.drawn) == 8


def test_one_flat_picture_of_many_is_found():
    class Flat(Host):
        def __call__(self, optimized, number, steps):
            drawn = super().__call__(optimized, number, steps)
            if optimized and number == 1:
                drawn.pictures[-1] = 7
            return drawn

    found = measure(Flat(batch=2), 2, STEPS)
    assert found.verdict.text == "The optimized image 4 of 4 is one flat colour: something is wrong."


@pytest.mark.parametrize("seeds", [1, 21, 2.5])
def test_too_few_seeds_and_too_many(seeds):
    host = Host()
    with pytest.raises(InvalidSetting, match="seeds"):
        measure(host, seeds, STEPS)
    assert not host.drawn
