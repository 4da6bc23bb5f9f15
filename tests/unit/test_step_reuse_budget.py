"""The account of Reuse Steps: how far a run believes the picture has moved, and which constants it uses for that."""

from __future__ import annotations

import math

import pytest
from paceline.optimizers.models.samplers import Calibration, calibration_of
from paceline.optimizers.step_reuse.budget import Budget, ErrorRate


def test_the_worst_picture_of_a_batch_decides():
    budget = Budget(0.1, calibration=Calibration(1.0))
    budget.measure_seeds([1.0, 1.0, 0.0, 0.0], 0.0)  # two pictures are the root of 2 apart
    assert budget.allows([0.0, 0.01], 1.0)
    assert not budget.allows([0.0, 0.5], 1.0)
    budget.spend([0.0, 0.14])
    assert not budget.allows([0.0, 0.03], 1.0)
    budget.settle([0.0, 0.001])
    assert budget.allows([0.0, 0.03], 1.0)


def test_errors_of_different_steps_add_up_by_their_squares():
    budget = Budget(1.0, calibration=Calibration(1.0))
    budget.measure_seeds([1.0, 0.0], 0.0)
    budget.spend([0.03])
    budget.settle([0.03])
    budget.spend([0.04])
    assert budget.used == pytest.approx(0.05 / math.sqrt(2))


def test_what_is_taken_back_leaves_less_of_small_errors():
    """With a power above 1 half the errors are less than half the distance; it is the share that has the power."""
    budget = Budget(1.0, calibration=Calibration(2.0, 1.5))
    budget.measure_seeds([1.0 / math.sqrt(2), 0.0], 0.0)
    budget.spend([0.25])
    assert budget.used == pytest.approx(2.0 * 0.125)


def test_the_rule_keeps_inside_of_the_budget_what_the_report_says():
    budget = Budget(0.01, calibration=Calibration(1.0, 2.0, shown=0.5))
    budget.measure_seeds([1.0 / math.sqrt(2), 0.0], 0.0)
    assert budget.allows([0.019], 1.0) and not budget.allows([0.021], 1.0)
    budget.spend([0.01])
    assert budget.used == pytest.approx(0.005)


def test_a_longer_leap_is_expected_to_be_worse():
    rate = ErrorRate(power=2)
    rate.test(1.0, [0.1])
    assert rate.expected(2.0) == pytest.approx([0.4])


def test_where_the_noise_is_made_changes_no_constants():
    assert calibration_of("dpmpp_2m_sde_gpu", flow=False) == calibration_of("dpmpp_2m_sde", flow=False)
    assert calibration_of("dpmpp_2m_sde_gpu", flow=False)[1]
