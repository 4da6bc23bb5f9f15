"""Where something begins or ends within a run, Reuse Steps forecasts nothing from what was there before it."""

from __future__ import annotations

import model_changes as changes
import pytest
from reusing import computed_steps, outcome, reuse

pytestmark = pytest.mark.slow


def two_prompts(studio):
    context, details = studio.positive[0]
    first = [context, {**details, "start_percent": 0.0, "end_percent": 0.5}]
    return {"positive": [first, [context * 0.5, {**details, "start_percent": 0.5, "end_percent": 1.0}]], "cfg": 1.0}


def controlnet(studio):
    sampling = changes.controlnet(studio)
    sampling["positive"][0][1]["control"].timestep_percent_range = (0.0, 0.5)
    return sampling


def scheduled_lora(studio):
    import comfy.hooks

    sampling = changes.lora_hook(studio)
    frames = comfy.hooks.HookKeyframeGroup()
    frames.add(comfy.hooks.HookKeyframe(strength=1.0, start_percent=0.0))
    frames.add(comfy.hooks.HookKeyframe(strength=0.1, start_percent=0.5))
    sampling["positive"][0][1]["hooks"].set_keyframes_on_hooks(frames)
    return sampling


@pytest.mark.parametrize("change", [two_prompts, controlnet, scheduled_lora])
def test_what_changes_within_a_run_has_a_warm_up_of_its_own(studio, change):
    model = reuse(studio, studio.model)
    computed, behind = computed_steps(studio, model, 20, 0.5, **change(studio))
    done = outcome(model)
    assert done.evaluations == 20 and len(computed) == done.computed
    assert not set(range(behind)) <= computed  # there was something to forget
    assert {behind, behind + 1, behind + 2} <= computed, (behind, computed)
    assert done.forecast >= 3
