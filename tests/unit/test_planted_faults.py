"""Verdicts on planted faults: models that are wrong somewhere, slower or faster by a known amount, or equal.

Each is judged some times; a wrong verdict is one that claims what is not so. ``make trust`` judges a thousand of each.
"""

from __future__ import annotations

import random

import planted
import pytest
from cases import often
from paceline.workbench.measurement.verdict import bound, settled
from planted import FALSE, MACHINES, verdicts

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
