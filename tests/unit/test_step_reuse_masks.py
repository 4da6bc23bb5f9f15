"""What a mask changes in the math of Reuse Steps: what is left of an error when the run ends, and where it grows."""

from __future__ import annotations

import math

import pytest
import torch
from paceline.optimizers.models.samplers import SAMPLERS, Place
from paceline.optimizers.step_reuse.correction import Correction
from paceline.optimizers.step_reuse.long_rule import GROWS, LongRule
from paceline.optimizers.step_reuse.parts import Blend
from paceline.optimizers.step_reuse.reuse_settings import StepReuseSettings
from solving import LEVELS, UPDATES, drive, sample, smooth

LEAP = [*torch.linspace(math.log(10.0), math.log(0.05), 14).exp().tolist(), 0.05 / 8, 0.0]
"""With a long last step but one, as many schedules have it."""


@pytest.mark.parametrize("levels", [LEVELS, LEVELS[:-1]], ids=["clean", "noise is left"])
def test_a_masks_errors_last_as_long_as_told(levels):
    """Where the prediction is the network's input, as at low noise, the rest of the run is known."""
    mask, keep = torch.tensor([[0.0, 0.4, 0.8, 1.0]]), torch.zeros(1, 4)

    def draw(wrong):
        return sample("euler", lambda x, sigma: x * mask + (sigma == wrong), levels=levels, mask=mask, keep=keep)

    for number in (3, 10, 16, 18):
        place = Place(float(number), levels[number], (*levels, 0.0)[number + 1])
        told = Blend(mask, keep).lasting(place, levels, lambda sigma: sigma) * (1 - place.ahead / place.sigma)
        assert torch.allclose(draw(levels[number]) - draw(None), told, rtol=0.2, atol=1e-6)


@pytest.mark.parametrize("answer", [1.0, -4.0])
@pytest.mark.parametrize("solver", UPDATES)
def test_how_far_an_error_grows_is_told(solver, answer):
    """A network that answers so to its input, and the plain latent is nought: one prediction is 1, and taken back."""
    for number in (4, 9, 12):
        known, x, before = Correction(SAMPLERS[solver].update), torch.zeros(1), None
        for place in [Place(float(at), *LEAP[at : at + 2]) for at in range(len(LEAP) - 1)]:
            prediction = torch.ones(1) if place.position == number else x * (answer if place.ahead > 0 else 1.0)
            off = known.take_back([torch.zeros(1)]) if place.position == number + 1 else None
            given = known.given(place, x, prediction, off)
            update = SAMPLERS[solver].update(place, None if before is None else before[0])
            x = update.keep * x + update.now * given + (update.before * before[1] if update.before else 0.0)
            before = place, given
        assert abs(float(x)) == pytest.approx(known.grows(LEAP, number, answer), rel=1e-3, abs=1e-5)


def test_a_step_is_computed_where_a_soft_mask_lets_its_error_grow():
    def left_out(mask, budget):
        rule = LongRule(StepReuseSettings(budget=budget), LEAP, solver="euler")
        actions, _ = drive(rule, smooth, LEAP, Blend(mask, torch.zeros(1, 4, 8, 8)))
        assert (GROWS in rule.outcome.notes) is bool((mask % 1).any())
        return {number for number, skips in enumerate(actions) if skips}

    soft, before_the_leap, budgets = torch.linspace(0, 1, 8).expand(1, 4, 8, 8), len(LEAP) - 4, (0.04, 0.1, 0.15, 0.3)
    of_soft, of_hard = (set().union(*(left_out(mask, one) for one in budgets)) for mask in (soft, (soft > 0.5).float()))
    assert of_soft and before_the_leap not in of_soft and before_the_leap in of_hard
