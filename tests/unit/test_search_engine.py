"""The search over numbers alone: pictures whose distances follow laws that it does not know."""

from __future__ import annotations

import math
import random

import pytest
from paceline.workbench.search.engine import DrawnPicture, Search
from paceline.workbench.search.space import REUSE, Candidate, Space

SPACE = Space(Candidate(30, "euler", "normal"), 0.15, frozenset({"steps", "sampler", "scheduler", "unguided", REUSE}))


def drawn(space: Space, one: Candidate, seed: int, world: int, spread: float = 0.4) -> DrawnPicture:
    """Return a picture in a world where the second solver is good, and half of the guidance is not."""
    luck = random.Random(f"{world} {one.key} {seed}")
    rate, floor = {"euler": (5.0, 0.0), "dpmpp_2m": (12.0, 0.03), "res_multistep": (40.0, 0.1)}[one.sampler]
    path = rate * (1 / one.steps - 1 / 30) if one.sampler == "euler" else rate / one.steps**2 + floor
    cache = 0.3 * one.cache[1]
    far = math.hypot(path, cache, 0.3 if one.unguided < 1 else 0.0) * math.exp(luck.gauss(0, spread))
    return DrawnPicture(one.key, seed, space.gain(one) * luck.uniform(0.95, 1.05), far)


def searched(world: int, space: Space = SPACE) -> tuple[Search, list[DrawnPicture]]:
    found = list[DrawnPicture]()
    while (following := Search(space, found).next()) is not None and len(found) < 40:
        assert following[1] == sum(one.key == following[0].key for one in found)
        found.append(drawn(space, *following, world))
    return Search(space, found), found


def test_most_searches_find_nearly_the_best_in_an_eighth_of_all_pictures():
    reached = []
    for world in range(12):
        every = [drawn(SPACE, one, number, world) for one in SPACE.candidates for number in range(3)]
        best = Search(SPACE, every).trades()[-1].gain
        found, pictures = searched(world)
        assert len(pictures) <= len(every) / 8
        reached.append((found.trades()[-1].gain if found.trades() else 1.0) / best)
    assert sorted(reached)[len(reached) // 2] >= 0.85 and min(reached) > 0.6


def test_what_holds_also_holds_for_later_pictures():
    inside = []
    for world in range(12):
        trades = searched(world)[0].trades()
        later = [drawn(SPACE, trades[-1].candidate, number, world) for number in range(3, 23)] if trades else []
        inside += [one.share <= 0.15 for one in later]
    assert len(inside) > 100 and sum(inside) / len(inside) >= 0.93


def test_trades_become_faster_and_farther():
    trades = searched(3)[0].trades()
    assert trades and all(trade.bound <= 0.15 and trade.gain > 1 for trade in trades)
    for careful, fast in zip(trades, trades[1:], strict=False):
        assert careful.gain < fast.gain and careful.bound < fast.bound


def test_a_picture_outside_rules_a_candidate_out():
    one = SPACE.candidates[0]
    found = [DrawnPicture(one.key, number, 5.0, share) for number, share in enumerate((0.01, 0.01, 0.2))]
    assert Search(SPACE, found).trades() == []
    for number in range(3):
        found = [DrawnPicture(other.key, number, 2.0, math.inf) for other in SPACE.candidates]
        assert Search(SPACE, found).next() is None


def test_the_same_pictures_give_the_same_answer():
    assert searched(5)[1] == searched(5)[1]


@pytest.mark.parametrize("changed", [frozenset(), frozenset({REUSE}), frozenset({"steps"}), frozenset({"unguided"})])
def test_what_may_not_change_does_not(changed):
    for one in Space(SPACE.plain, 0.15, changed).candidates:
        assert one.sampler == "euler" and one.scheduler == "normal"
        assert (one.steps != 30) <= ("steps" in changed) and bool(one.cache[0]) <= (REUSE in changed)
        assert (one.unguided < 1) <= ("unguided" in changed)


def test_samplers_with_noise_of_their_own_are_not_replaced():
    space = Space(Candidate(30, "euler_ancestral", "normal"), 0.15, SPACE.may_change)
    assert {one.sampler for one in space.candidates} == {"euler_ancestral"}


def test_nodes_that_make_a_step_faster_count_beside_what_is_left_out():
    space = Space(SPACE.plain, 0.15, frozenset({"steps"}), 1.5)
    (alone,) = [one for one in space.candidates if one.steps == 30]
    assert alone.with_nodes and space.gain(alone) == 1.5
    found = [DrawnPicture(alone.key, number, 1.0, 0.01) for number in range(3)]
    assert [trade.gain for trade in Search(space, found).trades()] == [1.5]
