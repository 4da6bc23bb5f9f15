"""Runs of 5 to 15 steps: which levels may go, how they are chosen, and when none is."""

from __future__ import annotations

import math

import pytest
import torch
from paceline.optimizers.step_reuse.reuse_policy import StepReusePolicy
from paceline.optimizers.step_reuse.reuse_settings import FEWEST_STEPS, SHORT, StepReuseSettings
from paceline.optimizers.step_reuse.short_rule import MARGIN, ShortRule
from solving import drive


def schedule(steps, low=0.03, high=14.0):
    return [*torch.linspace(math.log(high), math.log(low), steps).exp().tolist(), 0.0]


def run(steps=8, budget=1.0, solver="euler", change=0.05, levels=None, moved=None, predict=None, flow=False):
    """Sample with the rule; return which levels were left out, how far the picture moved, and the rule.

    The network's prediction goes with the noise level from a mean of 0 towards a picture, ``change`` strongly.
    """
    levels = levels or schedule(steps)
    picture = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(2)) * 0.5
    drift = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(3)) * change

    def smooth(x, sigma):
        return (
            picture * 0.0
            if sigma == levels[0]
            else picture + drift * math.hypot(sigma / (1 - sigma) if flow else sigma, 0.25)
        )

    drawn = []
    for limit in (0.0, budget):
        rule = StepReusePolicy(StepReuseSettings(budget=limit), "").rule_for(levels, solver, flow)
        start = torch.ones(1, 4, 8, 8) * levels[0]
        actions, x = drive(rule, predict or smooth, levels, x=start, solver=solver, moved=moved)
        drawn.append(x)
    out = [number for number, skipped in enumerate(actions) if skipped]
    return out, float((drawn[1] - drawn[0]).square().mean().sqrt()), rule


@pytest.mark.parametrize("steps", range(FEWEST_STEPS, SHORT + 2))
@pytest.mark.parametrize("solver", ["euler", "dpmpp_2m", "res_multistep"])
def test_single_late_levels_go_and_never_two_in_a_row(steps, solver):
    levels = schedule(steps, low=0.03 if steps > 5 else 0.3)  # no step too long for a second-order solver
    out, _, rule = run(steps, solver=solver, change=0.01, levels=levels)
    assert isinstance(rule, ShortRule) == (steps <= SHORT)
    if steps > SHORT:
        return
    assert len(out) == (1 if steps < 8 else 2 if steps < 12 else 3) and min(out) >= steps / 2
    assert all(b - a > 1 for a, b in zip(out, out[1:], strict=False))
    assert max(out) < steps - 1, "behind the last level no evaluation confirms it"
    assert rule.outcome.methods == {"hold": len(out)} and rule.outcome.computed == steps - len(out)


@pytest.mark.parametrize("alike", [True, False])
def test_where_seeds_look_alike_a_third_of_the_contrast_is_the_unit(alike):
    """The first prediction is then nearly the picture."""
    picture = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(2)) + 5.0
    first = picture * 0.99 if alike else picture * 0.0

    def predict(x, sigma):
        return first if sigma == schedule(8)[0] else picture + 0.001 * sigma

    unit = run(8, predict=predict)[2].budget.seeds[0]
    contrast = float(picture.std())
    assert unit == pytest.approx(contrast / 3, rel=0.05) if alike else unit > contrast


def test_it_stays_inside_of_what_a_short_run_may_use():
    for budget in (0.01, 0.02, 0.05, 0.1, 0.2):
        out, _, rule = run(8, budget=budget, change=0.2)
        assert rule.outcome.share <= budget / MARGIN * (1 + 1e-6), (budget, out)


@pytest.mark.parametrize("shift", [1.0, 2.0, 3.0])
def test_with_flow_matching_the_first_level_for_which_there_is_room_is_the_last_but_one(shift):
    """On trained transformers that one moves the picture least."""
    even = [1 - number / 8 for number in range(9)]
    levels = [shift * level / (1 + (shift - 1) * level) for level in even]
    chosen = (run(levels=levels, change=0.1, flow=True, budget=0.005 * 1.3**number)[0] for number in range(30))
    assert next(out for out in chosen if out) == [6]


def test_a_network_that_changes_abruptly_keeps_its_levels_and_is_booked_as_it_was_seen():
    def abrupt(x, sigma):
        at = schedule(8).index(sigma)
        return torch.full_like(x, [0, 1, 1.001, 1.002, 1.003, 3, 3.1, 3.2][at])

    out, _, rule = run(8, budget=0.05, predict=abrupt)
    assert out == [4] and rule.outcome.share > 0.1  # what came behind level 4 showed it
    out, _, _ = run(8, budget=0.05, predict=lambda x, sigma: torch.full_like(x, 2.0 ** -schedule(8).index(sigma)))
    assert out == []


def test_what_guidance_inside_of_a_network_does_to_its_first_prediction_is_not_taken_for_a_seed_change():
    first, seeds = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(4)), []
    for scale in (1.0, 3.0):
        rule = ShortRule(StepReuseSettings(budget=0.05), schedule(8), "euler")
        picture = first + torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(5)) * 0.3
        for number, level in enumerate(schedule(8)[:3]):
            rule.begin(rule.place_of(level))
            rule.end(torch.zeros(1, 4, 8, 8), picture if number else first * scale)
        rule.read()
        seeds.append(rule.budget.seeds[0])
    assert seeds[1] == pytest.approx(seeds[0], rel=0.05) and seeds[0] == pytest.approx(0.3 * math.sqrt(2), rel=0.1)


@pytest.mark.parametrize("change", [lambda x, number: x + number, lambda x, number: x * 1.5])
def test_it_steps_aside_where_something_moves_the_latent(change):
    out, moved, rule = run(8, moved=change)
    assert out == [] and moved == 0 and rule.aside
    assert "the latent is changed between the steps" in str(rule.outcome.notes)


@pytest.mark.parametrize("solver", ["dpmpp_2m", "res_multistep"])
def test_a_second_order_solver_keeps_all_levels_before_a_long_step(solver):
    """However late it is: an error two levels before it moves the picture by more than itself."""
    levels = [14.6, 6.7, 3.5, 2.1, 1.3, 0.79, 0.44, 0.03, 0.0]
    found = [run(levels=one, solver=by, change=0.01)[0] for one, by in
             ((levels, solver), (levels, "euler"), ([*levels[:-2], 0.1, 0.0], solver))]  # fmt: skip
    assert [len(out) for out in found] == [0, 2, 2]


@pytest.mark.parametrize("solver", ["euler", "dpmpp_2m"])
def test_at_much_noise_the_last_change_foretells_nothing(solver):
    """The ``karras`` levels of a network with zero terminal signal."""
    levels = [4518.8, 2317.9, 1108.1, 485.6, 190.5, 64.7, 18.03, 3.773, 0.502, 0.029, 0.0]
    assert run(levels=levels, solver=solver, change=0.0001)[0] == ([] if solver == "dpmpp_2m" else [8])
