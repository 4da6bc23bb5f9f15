"""Verdicts on planted faults: models that are wrong somewhere, slower or faster by a known amount, or equal.

Times are simulated with noise: drawn, in bursts, with a drift, and as it was recorded on a busy machine. Each fault is
judged a hundred times; a wrong verdict is one that claims what is not so. "Not certain" is never wrong.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from paceline.workbench.measurement import Evidence, compare_pictures, farthest, interleaved, judge, measure_speedup

RUNS = 100
RECORDED = json.loads((Path(__file__).parents[1] / "data" / "noise" / "wall.json").read_text())["long"]

Machine = Callable[[random.Random], Iterator[float]]
"""Yields, for one run after the other, how many times as long as on an empty machine it takes."""


def drawn(spread: float) -> Machine:
    def machine(dice):
        while True:
            yield dice.lognormvariate(0, spread)

    return machine


def in_bursts(dice: random.Random) -> Iterator[float]:
    busy = False
    while True:
        if dice.random() < 0.3:
            busy = not busy
        yield (1.6 if busy else 1.0) * dice.lognormvariate(0, 0.01)


def warming_up(dice: random.Random) -> Iterator[float]:
    level, change = 1.0, 1 + abs(dice.gauss(0, 0.02))
    while True:
        yield level * dice.lognormvariate(0, 0.005)
        level *= change


def recorded(dice: random.Random) -> Iterator[float]:
    """Each run is ten steps long, and the steps are those of the recording, one after the other."""
    place = dice.randrange(len(RECORDED))
    while True:
        yield sum(RECORDED[(place + step) % len(RECORDED)] for step in range(10)) / 10
        place += 10


MACHINES = {
    "quiet": drawn(0.005),
    "usual": drawn(0.01),
    "noisy": drawn(0.03),
    "wild": drawn(0.1),
    "bursts": in_bursts,
    "warming up": warming_up,
    "recorded": recorded,
}


def verdict(gain: float, rounds: int, machine: Machine, seed: int) -> str:
    """Return the state of the verdict on a model that is ``gain`` times as fast and draws the same."""
    noise = machine(random.Random(seed))
    seconds: dict[str, list[float]] = {"baseline": [], "optimized": []}
    for number in range(rounds):
        for side in interleaved(tuple(seconds), number):
            seconds[side].append(next(noise) / (gain if side == "optimized" else 1.0))
    return judge(Evidence(measure_speedup(**seconds), SAME, True, ANOTHER)).state


def pictures(seed: int, batch: int = 1) -> torch.Tensor:
    """Smooth pictures, as a model draws them: uint8 ``[batch, 96, 96, 3]``."""
    coarse = torch.rand(batch, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
    smooth = torch.nn.functional.interpolate(coarse, size=(96, 96), mode="bicubic", align_corners=False)
    return (smooth.clamp(0, 1).permute(0, 2, 3, 1) * 255).to(torch.uint8)


SAME = compare_pictures(pictures(1), pictures(1))
ANOTHER = compare_pictures(pictures(2), pictures(1))


@pytest.mark.parametrize("rounds", [3, 5, 10])
@pytest.mark.parametrize("name", MACHINES)
def test_a_model_that_is_as_fast_is_not_called_faster_or_slower(name, rounds):
    found = Counter(verdict(1.0, rounds, MACHINES[name], seed) for seed in range(3 * RUNS))
    assert found["faster"] <= 0.03 * 3 * RUNS and found["faster"] + found["slower"] <= 0.05 * 3 * RUNS
    if name == "quiet":
        assert found["no_effect"] > 0.5 * 3 * RUNS, "said where it can be said"


@pytest.mark.parametrize("rounds", [3, 5, 10])
@pytest.mark.parametrize("name", MACHINES)
def test_three_percent_faster_is_never_called_slower_or_the_same(name, rounds):
    found = Counter(verdict(1.03, rounds, MACHINES[name], seed) for seed in range(RUNS))
    assert found["slower"] + found["no_effect"] <= 0.05 * RUNS
    if name == "quiet":
        assert found["faster"] > 0.5 * RUNS


@pytest.mark.parametrize("rounds", [3, 5, 10])
@pytest.mark.parametrize("name", MACHINES)
def test_three_percent_slower_is_never_called_faster_or_the_same(name, rounds):
    found = Counter(verdict(1 / 1.03, rounds, MACHINES[name], seed) for seed in range(RUNS))
    assert found["faster"] + found["no_effect"] <= 0.05 * RUNS
    if name == "quiet":
        assert found["slower"] > 0.5 * RUNS


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


# ---- pictures

RIGHT = measure_speedup([1.5, 1.5, 1.5], [1.0, 1.0, 1.0])


def judged(optimized: dict[int, torch.Tensor], baseline: torch.Tensor, other: torch.Tensor):
    found = farthest(optimized, baseline)
    evidence = Evidence(
        speedup=RIGHT,
        difference=found.distance,
        same_bits=all(torch.equal(drawn, baseline) for drawn in optimized.values()),
        seed=compare_pictures(other, baseline),
        difference_run=found.run if len(optimized) > 1 else None,
        difference_picture=found.picture if len(baseline) > 1 else None,
        farthest=found,
    )
    return judge(evidence)


def slightly_off(drawn: torch.Tensor, seed: int) -> torch.Tensor:
    noise = torch.randint(-1, 2, drawn.shape, generator=torch.Generator().manual_seed(seed))
    return (drawn.int() + noise).clamp(0, 255).to(torch.uint8)


def test_rounding_is_hardly_visible():
    for seed in range(RUNS):
        baseline, other = pictures(seed, 2), pictures(seed + 5000, 2)
        found = judged({1: slightly_off(baseline, seed)}, baseline, other)
        assert (found.state, found.quality) == ("faster", "hardly visible")
        assert "region" not in found.text


@pytest.mark.parametrize("runs", [3, pytest.param(10, marks=pytest.mark.thorough)])
def test_a_model_that_is_wrong_in_one_run_is_found_out(runs):
    for seed in range(RUNS):
        baseline, other, bad = pictures(seed), pictures(seed + 5000), 1 + seed % runs
        drawn = {run: slightly_off(baseline, run) for run in range(1, runs + 1)}
        drawn[bad] = pictures(seed + 9000)
        found = judged(drawn, baseline, other)
        assert found.state == "suspicious" and f"run {bad}" in found.text


@pytest.mark.parametrize("batch", [2, *(pytest.param(size, marks=pytest.mark.thorough) for size in (7, 16))])
def test_a_model_that_is_wrong_in_one_picture_of_a_batch_is_found_out_and_the_picture_is_named(batch):
    for seed in range(RUNS):
        baseline, other, bad = pictures(seed, batch), pictures(seed + 5000, batch), seed % batch
        drawn = slightly_off(baseline, seed)
        drawn[bad] = pictures(seed + 9000)[0]
        found = judged({1: drawn}, baseline, other)
        assert found.state == "suspicious" and f"picture {bad + 1} " in found.text


def test_the_picture_and_the_run_are_both_named():
    baseline = pictures(1, 3)
    drawn = {1: baseline, 2: slightly_off(baseline, 1), 3: baseline.clone()}
    drawn[3][1] = pictures(2)[0]
    assert "of picture 2 in run 3 is larger than" in judged(drawn, baseline, pictures(3, 3)).text


def test_a_model_that_is_wrong_in_one_region_is_not_called_hardly_visible_and_said_to_be():
    found = Counter()
    for seed in range(RUNS):
        dice = random.Random(seed)
        baseline, other = pictures(seed), pictures(seed + 5000)
        drawn = slightly_off(baseline, seed)
        top, left = dice.randrange(80), dice.randrange(80)
        region = (0, slice(top, top + 16), slice(left, left + 16))
        drawn[region] = 255 - baseline[region] if dice.random() < 0.5 else torch.randint(
            0, 256, (16, 16, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)
        )  # fmt: skip
        verdict_on = judged({1: drawn}, baseline, other)
        assert verdict_on.quality not in ("identical", "no picture")
        found[verdict_on.quality] += 1
    assert found["visible"] >= 95


def test_a_fault_of_a_single_pixel_is_not_called_identical():
    for seed in range(RUNS):
        baseline, other = pictures(seed), pictures(seed + 5000)
        drawn = baseline.clone()
        drawn[0, seed % 96, seed % 90] ^= 128
        assert judged({1: drawn}, baseline, other).quality != "identical"
