"""What Reuse Steps decides before a run and says after it, without a host."""

from __future__ import annotations

import pytest
import torch
from paceline.optimizers.core.activity import Activity
from paceline.optimizers.step_reuse.budget import Outcome
from paceline.optimizers.step_reuse.reuse_policy import StepReusePolicy
from paceline.optimizers.step_reuse.reuse_settings import StepReuseSettings
from solving import drive, smooth

LEVELS = [*torch.linspace(10.0, 0.1, 16).tolist(), 0.0]
COUNTS = {"evaluations": 16, "computed": 10, "forecast": 6}


def policy(budget=0.05):
    return StepReusePolicy(StepReuseSettings(budget=budget), "the host asked for no evaluation")


def said(of):
    return of.summarize(Activity(model_calls=1))


@pytest.mark.parametrize(
    "levels",
    [LEVELS[-4:], LEVELS[:9], [0.0] * 13, [14.0, *range(11, 6, -1), 7.0, *range(6, -1, -1)]],
    ids=["few", "part", "none", "twice"],
)
def test_schedules_in_which_nothing_can_be_left_out_are_left_alone(reads, levels):
    asked = policy(1.0)
    assert asked.rule_for(levels, "euler", False) is None
    found = said(asked)
    reads(found.state, found.headline, found.details[0])


def test_a_host_can_leave_a_run_alone_with_its_reason():
    asked = policy()
    assert asked.rule_for(LEVELS, "euler", False, refusals=["another node skips steps"]) is None
    assert said(asked).details == ("another node skips steps",)


def test_where_no_budget_would_help_it_does_not_ask_for_one(reads):
    rising = policy(1.0)
    assert rising.rule_for(LEVELS[::-1], "euler", False) is None
    reads(*said(rising).details)


def test_a_run_that_begins_forgets_the_last_one():
    asked = policy()
    asked.outcome = Outcome(steps=14, computed=8, forecast=6)
    asked.began()
    assert said(asked).details == ("the host asked for no evaluation",)


def test_a_run_is_counted_and_the_estimate_is_held_against_the_budget(reads):
    asked = policy()
    asked.outcome = Outcome(steps=16, computed=10, forecast=6, share=0.04, methods={"linear": 4, "hold": 2})
    found = said(asked)
    assert found.counts == COUNTS
    reads(found.state, found.headline, *found.details)


def test_a_run_beyond_its_budget_by_its_own_estimate_is_not_called_a_success(reads):
    asked = policy()
    asked.outcome = Outcome(steps=16, computed=12, forecast=4, share=0.16)
    found = said(asked)
    reads(found.state, found.headline, found.details[0])


def test_an_alarm_is_raised_only_for_what_can_be_seen():
    asked = policy()
    for share, state in ((0.058, "active"), (0.07, "active"), (0.13, "partly")):
        asked.outcome = Outcome(steps=8, computed=7, forecast=1, share=share, methods={"hold": 1}, few=True)
        found = said(asked)
        assert found.state == state
        assert "budget 5 %; up to 15 steps one in ten measured pictures was more than 1.5 times" in str(found.details)


@pytest.mark.parametrize("solver", ["er_sde", "lcm", "dpmpp_sde", "uni_pc", None])
def test_few_steps_of_samplers_that_add_noise_or_are_not_known_are_left_alone(solver):
    for levels, left_alone in ((LEVELS[-15:], True), (LEVELS, False)):
        asked = policy(1.0)
        assert (asked.rule_for(levels, solver, False) is None) == left_alone
    asked.rule_for(LEVELS[-15:], solver, False)
    assert "add no noise (euler, ddim, dpmpp_2m, res_multistep)" in said(asked).details[0]


@pytest.mark.parametrize(("solver", "flow"), [("euler", False), ("dpmpp_sde", False), ("euler", True)])
def test_what_was_not_measured_is_said(solver, flow):
    asked = policy(0.0)
    drive(asked.rule_for(LEVELS, solver, flow), smooth, LEVELS)
    found = said(asked)
    assert found.state == "inactive" and "a larger budget would help" in found.details[0]
    details = str(found.details)
    assert ("this sampler was not measured" in details) == (solver == "dpmpp_sde")
    assert ("measured on two small transformers" in details) == flow


def test_the_worst_of_the_parts_is_meant():
    asked = policy(0.5)
    drive(asked.rule_for(LEVELS, "euler", False, split=lambda latent: [latent.movedim(2, 1)]), smooth, LEVELS)
    assert asked.outcome.parts == 8
    assert "both numbers are those of the worst of 8 frames and streams, such as sound" in said(asked).details
