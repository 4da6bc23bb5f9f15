"""Reuse Steps on real models: what it leaves out, that it leaves no trace, and that it says the truth."""

from __future__ import annotations

import emoji_model
import pytest
import torch
from comfy_host import in_process, transformers
from paceline.optimizers.step_reuse.plan import Plan

pytestmark = pytest.mark.slow


class Counted:
    """Counts how often the network runs, and on how many pictures."""

    def __init__(self, model) -> None:
        self.calls = 0
        self.rows = 0
        self._network = model.model.diffusion_model

    def __enter__(self):
        def count(_, args, __):
            self.calls += 1
            self.rows += args[0].shape[0]

        self._handle = self._network.register_forward_hook(count, with_kwargs=False)
        return self

    def __exit__(self, *_):
        self._handle.remove()


@pytest.fixture(scope="module")
def emoji(studio):
    model, encode = emoji_model.load()
    return model, encode(encode.names[3]), encode("")


def draw(emoji, model, steps=20, sampler="euler", scheduler="normal", seed=3, cfg=2.0, **options):
    latent = options.pop("latent", torch.zeros(options.pop("batch", 1), 4, 32, 32))
    return in_process.sample(model, emoji[1], emoji[2], latent, seed, steps, cfg, sampler, scheduler, **options)


def reuse(studio, model, **settings):
    chosen = {"budget": 0.5, "forecast": "auto", "reuse_forecast": True, "reuse_guidance": True, **settings}
    return studio.run("PacelineReuseSteps", model=model, **chosen)


def summary(model):
    from paceline.optimizers.hosts.comfyui.model import stack_of

    return stack_of(model).find("step_reuse").last_summary()


def test_steps_are_left_out_and_the_picture_stays_near(studio, emoji):
    model = reuse(studio, emoji[0])
    full = draw(emoji, emoji[0])
    with Counted(model) as counted:
        found = draw(emoji, model)
    said = summary(model)
    assert counted.calls == said.counts["computed"] + said.counts["guidance_reused"]
    assert said.counts["forecast"] >= 6, said
    assert (found - full).square().mean().sqrt() < 0.05
    assert torch.equal(draw(emoji, emoji[0]), full)


@pytest.mark.parametrize("sampler", ["euler", "dpmpp_2m", "euler_ancestral", "dpmpp_sde", "heun", "dpmpp_2s_ancestral"])
def test_a_budget_of_nothing_changes_no_bit(studio, emoji, sampler):
    model = reuse(studio, emoji[0], budget=0.0)
    assert torch.equal(draw(emoji, model, sampler=sampler, steps=9), draw(emoji, emoji[0], sampler=sampler, steps=9))
    said = summary(model)
    assert said.state == "inactive"
    unknown = any("this sampler was not measured" in line for line in said.details)
    assert unknown == (sampler in ("dpmpp_sde", "dpmpp_2s_ancestral"))


def test_a_transformer_is_judged_by_what_was_measured_on_one(studio, emoji):
    said = "measured on one small transformer"
    model = reuse(studio, emoji[0])
    draw(emoji, model, steps=9)
    assert said not in str(summary(model).details)
    model, prompt = reuse(studio, transformers.build("flux")), transformers.conditioning("flux")
    in_process.sample(model, prompt, prompt, transformers.latent("flux"), 3, 9, 2.0, "euler", "simple")
    assert said in str(summary(model).details)


def test_a_sampler_has_the_name_that_its_plan_has(studio):
    """In a run the sampler is a function; a plan is found for the name in the menu."""
    from comfy.samplers import SAMPLER_NAMES, sampler_object
    from paceline.optimizers.hosts.comfyui.step_reuse import sampler_name

    found = {name: sampler_name(sampler_object(name)) for name in SAMPLER_NAMES}
    assert {name: said for name, said in found.items() if said != name} == {"ddim": "euler"}


@pytest.mark.parametrize(("sampler", "named"), [("uni_pc", "uni_pc"), ("ddim", "euler")])
def test_a_plan_in_a_workflow_is_followed_and_only_where_it_belongs(studio, emoji, sampler, named):
    actions = ["hold" if number in (7, 9) else "compute" for number in range(12)]
    family = type(emoji[0].model).__name__
    plan = Plan(family, named, "normal", 2.0, tuple(actions)).to_json()
    model = reuse(studio, emoji[0], budget=1.0, plan=plan)
    draw(emoji, model, steps=12, sampler=sampler)
    said = summary(model)
    assert (said.counts["computed"], said.counts["forecast"]) == (10, 2), said
    draw(emoji, model, steps=12, sampler="heun")
    assert any("the sampler here is heun" in line for line in summary(model).details)


def test_few_steps_pass_through_and_say_so(studio, emoji):
    model = reuse(studio, emoji[0], budget=1.0)
    assert torch.equal(draw(emoji, model, steps=4), draw(emoji, emoji[0], steps=4))
    assert "4 steps are too few" in summary(model).details[0]
