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


class Sparse:
    """A node whose attention takes another way below a noise level, and says so as ComfyUI's sparse attention does."""

    def __init__(self, below: float, knows: bool = True) -> None:
        self.below, self.knows, self.asked = below, knows, []

    def __call__(self, *, layout, options, model):
        assert layout is None and model.input_blocks and options["uuids"]
        self.asked.append(float(options["sigmas"][0]))
        return ("sparse" if self.asked[-1] < self.below else "dense",) if self.knows else None

    def on(self, model):
        clone = model.clone()
        clone.model_options["transformer_options"]["attention_backend_history_v1"] = {"sparse": self}
        return clone


def test_nothing_is_forecast_across_a_change_of_the_way_attention_goes(studio):
    levels = studio.model.model.model_sampling
    sparse = Sparse(float(levels.percent_to_sigma(0.5)))
    model = reuse(studio, sparse.on(studio.model))
    computed, behind = computed_steps(studio, model, 20, 0.5)
    done = outcome(model)
    assert sparse.asked and not set(range(behind)) <= computed
    assert {behind, behind + 1, behind + 2} <= computed, (behind, computed)
    assert done.forecast >= 3


def test_where_the_way_is_not_known_nothing_is_forecast_and_the_node_says_why(studio):
    model = reuse(studio, Sparse(1.0, knows=False).on(studio.model))
    studio.sample(model, steps=20)
    assert outcome(model).forecast == 0
    assert "does not say by which way in the next step: Reuse Steps steps aside" in studio.report(model)


def test_nothing_is_forecast_across_a_change_of_our_own_attention(studio):
    """From the tenth evaluation on the backend fails, and ComfyUI's own attention takes its place."""
    attended = studio.attention(studio.model, "sdpa_math")
    policy = attended.get_attachment("paceline").find("attention").policy
    model = reuse(studio, attended)
    calls = []
    exact = policy.function

    def function(inputs):
        calls.append(None)
        if len(calls) > 14 * 3:
            raise RuntimeError("no kernel")
        return exact(inputs)

    policy.function = function
    computed, _ = computed_steps(studio, model, 20, 0.5)
    assert policy.broken
    first = sorted(computed)[3]  # the evaluation in which it failed
    assert {first + 1, first + 2} <= computed, computed
