"""Plans of Reuse Steps: as JSON, and what they are for."""

from __future__ import annotations

import json
import math

import pytest
from paceline.core.errors import InvalidSetting
from paceline.optimizers.step_reuse.plan import Plan

PLAN = Plan("SD15", "euler", "normal", 7.0, ("compute", "hold", "guidance", "compute"))


def test_a_plan_goes_through_json():
    assert Plan.from_json(PLAN.to_json()) == PLAN


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actions": ["compute", "jump"]}, "Step 1 of the plan is 'jump'"),
        ({"family": "a\n[ERROR] b"}, "family of the plan is .* one line"),
        ({"sampler": "s" * 101}, "sampler of the plan is .* one line"),
        ({"k" * 600_000: 1}, "characters. At most 500000"),
        ({"actions": "compute"}, "no list of actions"),
        ({"actions": [["compute"]]}, "Step 0"),
        ({"guidance": "seven"}, "guidance of the plan"),
        ({"family": 3}, "family of the plan"),
        ({"format": 2}, "format of the plan"),
        ({"more": 1}, "'more' is unknown"),
        ({"budget": math.inf}, "budget of the plan"),
    ],
)
def test_a_plan_that_is_wrong_says_where(change, message):
    with pytest.raises(InvalidSetting, match=message):
        Plan.from_json(json.dumps({**json.loads(PLAN.to_json()), **change}))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": 1}'])
def test_text_that_is_no_plan(text):
    with pytest.raises(InvalidSetting):
        Plan.from_json(text)


def test_a_plan_is_for_one_kind_of_run():
    assert PLAN.mismatch("SD15", "euler", 4, 7.0) is None
    assert "the sampler here is heun" in str(PLAN.mismatch("SD15", "heun", 4, 7.0))
    assert "the number of steps here is 20" in str(PLAN.mismatch("SD15", "euler", 20, 7.0))
    assert "the guidance here is 3" in str(PLAN.mismatch("SD15", "euler", 4, 3.0))
