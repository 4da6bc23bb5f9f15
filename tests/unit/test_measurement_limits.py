"""Where one judgement of Compare Models ends and the next begins, and what is said of a single region."""

from __future__ import annotations

import math

import pytest
from paceline.workbench.measurement.evidence import Control, Evidence
from paceline.workbench.measurement.quality import Distance, Farthest
from paceline.workbench.measurement.speedup import Speedup, measure_speedup
from paceline.workbench.measurement.verdict import QUALITIES, judge

FASTER = measure_speedup([1.42, 1.43, 1.41], [1.0, 1.0, 1.0])
SEED = Distance(0.5, 6.0, 0.2)
REGION = ", but one region differs more than another seed's picture would"


def distance(rmse: float) -> Distance:
    return Distance(rmse, -20 * math.log10(rmse) if rmse else None, 0.9)


def evidence(rmse: float, *, seed: Distance = SEED, speedup: Speedup = FASTER, **others) -> Evidence:
    return Evidence(speedup, distance(rmse), False, seed, **others)


def with_region(rmse: float, region: float, **others) -> Evidence:
    alone = distance(rmse)
    return evidence(rmse, farthest=Farthest(1, alone, region), **others)


def control(rmse: float, kind: str = "fewer_steps") -> tuple[Control, ...]:
    return (Control(kind, 10, 20, 1.0, 2.0, distance(rmse)),)


@pytest.mark.parametrize(("region", "said"), [(0.1, False), (0.5, False), (0.51, True), (0.9, True)])
def test_a_region_that_is_worse_than_another_seeds_picture_is_told(region, said):
    found = judge(with_region(0.02, region))
    assert (REGION in found.text, found.quality) == (said, "visible" if said else "hardly visible")
    assert found.state == "faster", "a region alone does not make it another picture"


@pytest.mark.parametrize(
    ("found", "quality"),
    [
        (evidence(0.0), "identical"),
        (Evidence(FASTER, distance(0.0), True, SEED), "identical"),
        (evidence(0.1, broken="The optimized image has NaN"), "no picture"),
        (evidence(0.05), "hardly visible"),
        (evidence(0.0501), "visible"),
        (evidence(0.25), "visible"),
        (evidence(0.2501), "another picture"),
        (evidence(0.5), "another picture"),
        (evidence(0.501), "no picture"),
        (evidence(0.7), "no picture"),
        (evidence(0.7, controls=control(0.7)), "no picture"),
        (evidence(0.7, controls=control(0.71)), "another picture"),
        (evidence(1 / 255, seed=distance(0.0)), "hardly visible"),
        (evidence(1.01 / 255, seed=distance(0.0)), "visible"),
    ],
)
def test_the_scale_ends_on_the_milder_side(found, quality):
    assert judge(found).quality == quality
    assert quality in QUALITIES


def test_the_baselines_own_noise_is_wrong_from_more_than_half_a_seed_change():
    assert judge(evidence(0.1, repeat=distance(0.25))).state == "faster"
    assert judge(evidence(0.1, repeat=distance(0.2501))).state == "suspicious"


LATE = "leaving out 10 of 20 levels gives 2x and moves the picture"


@pytest.mark.parametrize(
    ("late", "fewer", "said"),
    [
        (0.3, 0.4, f"; {LATE} 0.6 of a seed change, 3 times as far."),
        (
            0.11,
            0.4,
            f"; {LATE} 1/5 of a seed change, with 1.1 times the difference: you do not need this optimization.",
        ),
        (0.4, 0.3, "; fewer steps in the same time (10 of 20) would differ 3 times as much."),
    ],
)
def test_the_nearer_control_counts(late, fewer, said):
    assert judge(evidence(0.1, controls=control(late, "late_levels") + control(fewer))).text.endswith(said)


def test_a_seed_that_changes_little_is_known_by_either_control():
    found = evidence(0.7, controls=control(0.3, "late_levels") + control(0.71))
    assert judge(found).quality == "another picture"


@pytest.mark.parametrize(("repeat", "within"), [(None, False), (0.09, False), (0.1, True), (0.2, True)])
def test_the_baselines_own_difference_counts_up_to_it(repeat, within):
    given = {} if repeat is None else {"repeat": distance(repeat)}
    assert evidence(0.1, **given).within_repeat == within
    assert not evidence(0.0, **given).within_repeat, "no difference is no chance"
