"""Benchmark Sweep with ``search: plan``: the plan is saved by its name, and measured beside the rule without one."""

from __future__ import annotations

import pytest
import torch
from paceline.core.errors import InvalidSetting
from paceline.optimizers.step_reuse.plan import Plan
from sweep_files import saved


def test_a_plan_is_found_saved_measured_and_followed_by_its_name(sweeping, folders):
    asked = {"search": "plan", "steps": 8, "largest_difference": 0.04}
    sweeping.run("this is not read", **asked)
    file = folders / "user" / "__paceline" / "plans" / "a study.json"
    plan = Plan.from_json(file.read_text())
    assert (plan.steps, plan.sampler, plan.budget) == (8, "dpmpp_2m", 0.02)
    content = saved(folders)
    cells = [entry["cell"] for entry in content["results"]]
    assert cells == [{"ReuseSteps.budget": 0.04, "ReuseSteps.plan": name} for name in ("", "a study")]
    assert {entry["state"] for entry in content["results"]} == {"measured"}

    node = sweeping.studio.nodes["PacelineReuseSteps"]
    inputs = {"budget": 0.04, "forecast": "auto", "reuse_forecast": True, "reuse_guidance": True}
    with torch.inference_mode():
        model = node.execute(model=sweeping.model, plan="a study", **inputs).args[0]
    assert model.get_attachment("paceline").find("step_reuse").settings.plan == plan
    before = node.fingerprint_inputs(plan="a study")
    file.write_text(file.read_text().replace('"scheduler": "karras"', '"scheduler": "normal"'))
    assert node.fingerprint_inputs(plan="a study") != before  # ComfyUI runs the node again

    with pytest.raises(InvalidSetting, match=r"There is a plan 'a study' already: for .*, 8 steps.*Give study another"):
        sweeping.run("", **asked | {"steps": 9})
    with pytest.raises(InvalidSetting, match="There is no plan 'another'"):
        node.execute(model=sweeping.model, plan="another", **inputs)
