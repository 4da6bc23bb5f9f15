"""What may be said about a speed-up from a few rounds, where judgements end, and when a workflow is called slower."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from paceline.measure.evidence import Control, Evidence, share_of
from paceline.measure.picture import Distance, distances
from paceline.measure.speedup import measure_speedup
from paceline.measure.verdict import QUALITIES, fraction, judge, of_a_seed_change
from paceline.service.faster.kept_runs import KeptRun, slower

SAME = Distance(0.0, None, 1.0)
SEED = Distance(0.36, 8.9, 0.2)
FASTER = measure_speedup([1.42, 1.43, 1.41], [1.0, 1.0, 1.0])
EQUAL = measure_speedup([1.0, 1.005, 0.99], [1.0, 1.0, 1.0])
NOISY = measure_speedup([1.5, 1.2, 1.0], [1.0, 1.0, 1.0])
TWICE = measure_speedup([1.3, 1.0], [1.0, 1.0])
WILD = measure_speedup([1.0, 3.0, 0.3, 1.1], [1.0, 1.0, 1.0, 1.0])
SLOWER = measure_speedup([1.0, 1.0, 1.01], [1.2, 1.21, 1.2])
ONCE = measure_speedup([1.5], [1.0])


def distance(rmse: float) -> Distance:
    return Distance(rmse, -20 * math.log10(rmse) if rmse else None, 0.9)


def evidence(speedup=FASTER, difference=distance(0.04), same_bits=False, seed=SEED, **others) -> Evidence:  # noqa: B008
    return Evidence(speedup, [difference], same_bits, seed, **others)


def test_the_interval_is_students():
    from scipy.stats import t

    found = measure_speedup([2.0, 4.0, 3.0], [1.0, 1.0, 1.0])
    logs = torch.tensor([2.0, 4.0, 3.0]).log()
    low, high = t.interval(0.95, 2, loc=logs.mean().item(), scale=(logs.std() / 3**0.5).item())
    assert (found.ratio, found.rounds) == (3.0, 3)
    assert (found.low, found.high) == pytest.approx((math.exp(low), math.exp(high)), rel=1e-3)


def test_only_a_difference_that_the_rounds_agree_on_counts():
    assert FASTER.faster and not FASTER.slower
    assert SLOWER.slower and not SLOWER.faster
    assert not EQUAL.faster and not EQUAL.slower
    assert not measure_speedup([1.0, 3.0], [1.0, 1.0]).faster
    assert not measure_speedup([1.004, 1.004, 1.004], [1.0, 1.0, 1.0]).faster, "a trifle, however sure"
    assert not ONCE.faster and not ONCE.slower


def test_an_interval_that_says_nothing_is_not_given():
    absurd = measure_speedup([1.0, 100.0], [1.0, 1.0])
    assert absurd.high > 1e9, "Student's factor for two rounds is large"
    assert absurd.interval is None and ONCE.interval is None and TWICE.interval is None
    assert FASTER.interval == (FASTER.low, FASTER.high)
    assert NOISY.interval == (NOISY.low, NOISY.high)


VERDICTS = {
    "faster": evidence(),
    "same": evidence(EQUAL, SAME, same_bits=True),
    "same in 8 bits": evidence(difference=SAME),
    "no gain": evidence(EQUAL),
    "noisy, same": evidence(NOISY, SAME, same_bits=True),
    "noisy, less work": evidence(NOISY, work=(15.5, 30.0)),
    "noisy, as much work": evidence(NOISY, work=(30.0, 30.0)),
    "wild": evidence(WILD),
    "slower": evidence(SLOWER),
    "once": evidence(ONCE),
    "far": evidence(difference=distance(0.25)),
    "farther": evidence(difference=distance(0.5), controls=(Control("fewer_steps", 9, 20, 9.0, 2.2, distance(0.9)),)),
    "broken": evidence(broken="The optimized image has NaN"),
    "its own noise": evidence(difference=distance(0.01), repeat=distance(0.31)),
    "seeds alike": evidence(seed=SAME),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_the_verdict_in_words(reads, name):
    verdict = judge(VERDICTS[name])
    reads(verdict.state, verdict.text)
    assert verdict.text.startswith(verdict.headline)
    assert ";" not in verdict.headline  # it stands on a badge


def test_the_control_is_a_multiple_of_the_difference():
    control = Control("fewer_steps", 10, 20, 1.0, 2.0, distance(0.08))
    assert evidence().ratio(control) == pytest.approx(2.0)
    assert evidence(difference=SAME).ratio(control) is None


def test_shares_as_a_person_says_them(reads):
    reads(*(fraction(share) for share in (0.001, 0.012, 0.11, 0.34, 0.4, 0.94, 0.96, 2.44, 9.96, 12.4)))
    reads(*(of_a_seed_change(share) for share in (0.0, 0.11, 0.5, 1.0, 2.44, 99.6, 1234.5)))


# ---- where one judgement ends and the next begins

HALF = Distance(0.5, 6.0, 0.2)


def moved(rmse: float, seed: Distance = HALF, **others) -> Evidence:
    return evidence(difference=distance(rmse), seed=seed, **others)


def control(rmse: float, kind: str = "fewer_steps") -> tuple[Control, ...]:
    return (Control(kind, 10, 20, 1.0, 2.0, distance(rmse)),)


@pytest.mark.parametrize(
    ("found", "quality"),
    [
        (moved(0.0), "identical"),
        (moved(0.0, same_bits=True), "identical"),
        (moved(0.1, broken="The optimized image has NaN"), "no picture"),
        (moved(0.01), "not visible"),
        (moved(0.0101), "hardly visible"),
        (moved(0.05), "hardly visible"),
        (moved(0.0501), "visible"),
        (moved(0.25), "visible"),
        (moved(0.2501), "another picture"),
        (moved(0.5), "another picture"),
        (moved(0.501), "no picture"),
        (moved(0.7), "no picture"),
        (moved(0.7, controls=control(0.7)), "no picture"),
        (moved(0.7, controls=control(0.71)), "another picture"),
        (moved(0.7, controls=control(0.3, "late_levels") + control(0.71)), "another picture"),
        (moved(1 / 255, seed=distance(0.0)), "hardly visible"),
        (moved(1.01 / 255, seed=distance(0.0)), "visible"),
    ],
)
def test_the_scale_ends_on_the_milder_side(found, quality):
    assert judge(found).quality == quality
    assert quality in QUALITIES


@pytest.mark.parametrize(("late", "fewer"), [(0.3, 0.4), (0.11, 0.4), (0.4, 0.3)])
def test_the_nearer_control_counts(reads, late, fewer):
    reads(judge(moved(0.1, controls=control(late, "late_levels") + control(fewer))).text)


@pytest.mark.parametrize("repeat", [None, 0.09, 0.1, 0.25, 0.2501])
def test_the_baselines_own_difference_counts_up_to_it_and_is_wrong_from_more_than_half_a_seed_change(repeat):
    given = {} if repeat is None else {"repeat": distance(repeat)}
    assert moved(0.1, **given).within_repeat == (repeat is not None and repeat >= 0.1)
    assert not moved(0.0, **given).within_repeat, "no difference is no chance"
    assert judge(moved(0.1, **given)).state == ("suspicious" if repeat == 0.2501 else "faster")


BASE = KeptRun("work", "2026-11-01T10:00:00+00:00", {"steps": 12.0, "loading": 2.0}, False, {"ComfyUI": "0.30"}, {})


def slower_of(runs):
    return slower(runs, runs[-1])


def run(day: int, steps: float = 12.0, loading: float = 2.0, **changes) -> KeptRun:
    when = f"2026-11-{day:02}T10:00:00+00:00"
    return replace(BASE, when=when, seconds={"steps": steps, "loading": loading}, **changes)


QUICK = [run(1), run(2, 12.5), run(3, 11.8), run(4)]
NEWER = {"ComfyUI": "0.33"}


def test_it_says_since_when_where_and_what_changed(reads):
    slow = [run(8, 12.0, 41.0, facts=NEWER), run(9, 12.2, 39.0, facts=NEWER)]
    found = slower_of([*QUICK, *slow])
    reads(found)
    later = slower_of([*QUICK, *slow, run(10, 12.1, 40.0, facts=NEWER)])
    assert later.split(": ")[0] == found.split(": ")[0], "it stays true while it lasts"


@pytest.mark.parametrize(
    "runs",
    [
        QUICK,
        [*QUICK, run(8, 30.0)],  # one alone: another program may have been at work
        [*QUICK, run(8, 30.0), run(9)],  # it is quick again
        [*QUICK, run(8, 30.0), run(9), run(10, 30.0)],
        [*QUICK[:2], run(8, 30.0), run(9, 30.0)],  # too few before
        [*QUICK, run(8, 15.0), run(9, 15.0)],  # not clearly
        [run(1), run(2, 25.0), run(3), run(8, 30.0), run(9, 30.0)],  # one before was about as slow
        [*QUICK, run(8, 30.0, work="another"), run(9, 30.0, work="another")],
        [replace(one, seconds={"steps": 0.1}) for one in QUICK] + [run(8, 0.2, 0.0), run(9, 0.2, 0.0)],  # twice nothing
    ],
)
def test_no_alarm(runs: list[KeptRun]):
    assert slower_of(runs) is None


def test_the_first_run_after_a_start_is_compared_with_such_runs_and_without_what_it_loads(reads):
    cold = [run(day, loading=30.0 * day, loaded=True) for day in (5, 6, 7, 8, 9)]
    assert slower_of([*QUICK, *cold]) is None
    slow = [run(day, 40.0, 2.0, loaded=True) for day in (10, 11)]
    reads(slower_of([*cold, *QUICK, *slow]))


def test_where_seeds_look_alike_a_share_is_of_a_third_of_the_contrast():
    picture = torch.rand(1, 32, 32, 3, generator=torch.Generator().manual_seed(3)).mul(255).byte()
    seed, moved = ((picture.int() + by).clamp(0, 255).byte() for by in (1, 2))
    share = share_of(*(distances(other, picture)[0] for other in (moved, seed)))
    assert share == pytest.approx(6 / float(picture.double().std(correction=0)), rel=0.02)
