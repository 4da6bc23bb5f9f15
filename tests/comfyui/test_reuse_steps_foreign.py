"""Reuse Steps where other code changes the latent, its size or the noise levels, or leaves out steps too."""

from __future__ import annotations

import emoji_model
import model_changes as changes
import pytest
import torch
from cases import often
from comfy_host import in_process
from reusing import computed_steps, outcome, reuse, technique

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def icons(studio):
    model, encode = emoji_model.load(emoji_model.ICONS)
    return model, encode("blue car"), encode("")


def draw(icons, model, seed=7, sampler="dpmpp_2m", steps=24, latent=None):
    latent = torch.zeros(1, 4, 32, 32) if latent is None else latent
    return in_process.sample(model, icons[1], icons[2], latent, seed, steps, 4.0, sampler)


def seed_change(icons, plain, **sampling):
    return sum(float((draw(icons, icons[0], seed, **sampling) - plain).norm()) for seed in (107, 207)) / 2


def masks():
    hard = torch.zeros(1, 1, 32, 32)
    hard[..., 8:24, 6:26] = 1
    feathered = torch.nn.functional.avg_pool2d(hard, 9, stride=1, padding=4)
    return {"hard": hard, "feathered": feathered, "graded": torch.linspace(0, 1, 32).expand(1, 1, 32, 32).clone()}


@pytest.mark.parametrize("sampler", often(["dpmpp_2m"], ["euler", "dpmpp_2m"]))
@pytest.mark.parametrize("name", often(["feathered"], ["hard", "feathered", "graded", "differential"]))
def test_inpainting_stays_near_its_budget(studio, core_node, icons, name, sampler):
    """ComfyUI blends the kept picture into the latent and into each prediction, outside of the guider."""
    model, mask = icons[0], masks().get(name, masks()["graded"])
    if name == "differential":  # each element is free from its own step on
        model = core_node("comfy_extras.nodes_differential_diffusion", "DifferentialDiffusion", model=model)
    changed = (model, *icons[1:])
    sampling = {"latent": {"samples": draw(icons, icons[0], seed=3), "noise_mask": mask}, "sampler": sampler}
    plain = draw(changed, model, **sampling)
    reusing = reuse(studio, model, budget=0.05)
    moved = float((draw(changed, reusing, **sampling) - plain).norm()) / seed_change(changed, plain, **sampling)
    swings = sampler == "dpmpp_2m" and name in ("feathered", "graded")  # all may be computed then
    assert moved < 0.1 and (swings or outcome(reusing).forecast)


SMALL = torch.zeros(1, 4, 16, 16)
"""Where it does not matter what is drawn."""


def sampled(model, icons, sampler, sigmas, size=32):
    import comfy.sample
    import comfy.samplers

    latent = torch.zeros(1, 4, size, size)
    noise, solver = comfy.sample.prepare_noise(latent, 3), sampler
    if not isinstance(sampler, comfy.samplers.Sampler):
        solver = comfy.samplers.KSAMPLER(sampler)
    with torch.inference_mode():
        return comfy.sample.sample_custom(
            model, noise, 4.0, solver, sigmas, icons[1], icons[2], latent, disable_pbar=True, seed=3
        )


def levels(model, steps=20, scheduler="karras"):
    import comfy.samplers

    return comfy.samplers.calculate_sigmas(model.get_model_object("model_sampling"), scheduler, steps)


@pytest.mark.thorough
@pytest.mark.parametrize("told", [True, False])
def test_noise_that_rises_again_is_left_alone_from_there(studio, icons, told):
    """Restart sampling: down, back up with fresh noise, down again; in the schedule, or by the sampler alone."""
    from comfy.k_diffusion.sampling import sample_euler

    down = levels(icons[0])
    back = torch.linspace(2.0**0.5, float(down[12]) ** 0.5, 9) ** 2

    def restarting(model, x, sigmas, **options):
        x = sample_euler(model, x, down[:13], **options)
        noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
        x = sample_euler(model, x + noise * (back[0] ** 2 - down[12] ** 2) ** 0.5, back, **options)
        return sample_euler(model, x, down[12:], **options)

    sigmas = torch.cat([down[:13], back, down[13:]]) if told else down
    plain = sampled(icons[0], icons, restarting, sigmas)
    seeds = seed_change(icons, draw(icons, icons[0]))
    reusing = reuse(studio, icons[0], budget=0.15)
    moved = float((sampled(reusing, icons, restarting, sigmas) - plain).norm()) / seeds
    assert moved < 0.15, moved
    said = str(technique(reusing).last_summary().details)
    assert ("adds noise" if told else "the noise rises again") in said


def test_a_sampler_that_enlarges_the_latent(studio, icons):
    from comfy_extras.nodes_advanced_samplers import SamplerLCMUpscale

    sampler = SamplerLCMUpscale.execute(scale_ratio=2.0, scale_steps=10, upscale_method="bislerp")[0]
    plain = sampled(icons[0], icons, sampler, levels(icons[0]), 16)
    reusing = reuse(studio, icons[0], budget=0.15)
    assert torch.equal(sampled(reusing, icons, sampler, levels(icons[0]), 16), plain)
    assert "of several sizes" in str(technique(reusing).last_summary().details)


def with_cache(model, inside):
    """Every second call after the tenth is answered with the change that the last one made: ``inside`` of the network,
    whose blocks do not run then, or around it."""
    kept = {"calls": 0, "sigma": 0.0}

    def wrapper(apply, given):
        x, sigma = given["input"], given["timestep"]
        kept["calls"] = 0 if float(sigma[0]) > kept["sigma"] else kept["calls"] + 1
        kept["sigma"] = float(sigma[0])
        if kept["calls"] > 10 and kept["calls"] % 2:
            return x + kept["change"]
        out = apply(x, sigma, **given["c"])
        kept["change"] = out - x
        return out

    def replaced(executor, x, t, c_concat=None, c_crossattn=None, control=None, transformer_options=None, **kwargs):
        return wrapper(
            lambda x, t, **c: executor(x, t, c_concat, c_crossattn, control, transformer_options or {}, **kwargs),
            {"input": x, "timestep": t, "c": {}},
        )

    clone = model.clone()
    if inside:
        clone.add_wrapper_with_key("apply_model", "another", replaced)
    else:
        clone.set_model_unet_function_wrapper(wrapper)
    return clone


@pytest.mark.parametrize("inside", often([True], [True, False]))
def test_a_step_cache_without_a_mark_is_known_by_what_it_does(studio, icons, inside):
    reusing = reuse(studio, with_cache(icons[0], inside), budget=0.05)
    draw(icons, reusing, sampler="euler", steps=30, latent=SMALL)
    assert "skips steps too" in str(technique(reusing).last_summary().details)


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


@pytest.mark.parametrize("change", often([two_prompts], [two_prompts, controlnet, scheduled_lora]))
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
    assert "in a way that can change with the next step: Reuse Steps is off" in studio.report(model)


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


@pytest.mark.parametrize("counts", [False, True])
def test_a_patch_that_counts_its_calls_is_named(studio, icons, counts):
    """As ControlNet-LLLite with `steps`: modules behind a patch, each with the number of its call."""

    class Layer(torch.nn.Module):
        current_step = 0

        def forward(self, q):
            self.current_step += counts
            return q

    class Patch:
        def __init__(self):
            self.modules = {"one": Layer()}
            self.modules["one"].current_step = 0

        def __call__(self, q, k, v, extra_options):
            return self.modules["one"](q), k, v

    model = icons[0].clone()
    model.set_model_attn1_patch(Patch())
    reusing = reuse(studio, model, budget=0.15)
    draw(icons, reusing, latent=SMALL)
    assert outcome(reusing).forecast
    said = str(outcome(reusing).notes)
    assert ("code in test_reuse_steps_foreign.py counts its own calls" in said) == counts
