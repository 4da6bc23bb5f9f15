"""Reuse Steps where other code changes the latent, its size or the noise levels, or leaves out steps too."""

import emoji_model
import model_changes as changes
import pytest
import torch
from cases import often
from comfy_host import in_process
from reusing import computed_steps, outcome, reuse, technique
from trust.trust_nodes import others

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


def custom(core_node, icons, model, sampler, sigmas):
    """Sample as SamplerCustom does."""
    given = {"positive": icons[1], "negative": icons[2], "latent_image": {"samples": SMALL}}
    how = {"sampler": sampler, "sigmas": sigmas, "add_noise": True, "noise_seed": 3, "cfg": 4.0}
    with torch.inference_mode():
        found = core_node("comfy_extras.nodes_custom_sampler", "SamplerCustom", model=model, **given, **how)
    return found["samples"]


def karras(model):
    from comfy_extras.nodes_custom_sampler import BasicScheduler

    return BasicScheduler.execute(model, "karras", 20, 1.0)[0]


@pytest.mark.thorough
def test_noise_that_a_sampler_adds_by_itself_is_left_alone_from_there(studio, core_node, icons):
    """Restart sampling: down, back up with fresh noise, down again; nothing of it is in the schedule."""
    from comfy.k_diffusion.sampling import sample_euler
    from comfy.samplers import KSAMPLER

    def restarting(model, x, sigmas, **options):
        x = sample_euler(model, x, sigmas[:13], **options)
        noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
        x = x + noise * (sigmas[6] ** 2 - sigmas[12] ** 2) ** 0.5
        return sample_euler(model, x, sigmas[6:], **options)

    reusing, sigmas = reuse(studio, icons[0], budget=0.15), karras(icons[0])
    plain, found = (custom(core_node, icons, model, KSAMPLER(restarting), sigmas) for model in (icons[0], reusing))
    assert (found - plain).norm() < 0.15 * seed_change(icons, draw(icons, icons[0], latent=SMALL), latent=SMALL)
    assert "the noise rises again" in str(technique(reusing).last_summary().details)


def test_a_sampler_that_enlarges_the_latent(studio, core_node, icons):
    from comfy_extras.nodes_advanced_samplers import SamplerLCMUpscale

    sampler = SamplerLCMUpscale.execute(scale_ratio=2.0, scale_steps=10, upscale_method="bislerp")[0]
    reusing = reuse(studio, icons[0], budget=0.15)
    assert torch.equal(*(custom(core_node, icons, one, sampler, karras(one)) for one in (icons[0], reusing)))
    assert "of several sizes" in str(technique(reusing).last_summary().details)


def test_a_step_cache_without_a_mark_is_known_by_what_it_does(studio, icons):
    reusing = reuse(studio, others.cache(icons[0])[0], budget=0.05)
    draw(icons, reusing, sampler="euler", steps=30, latent=SMALL)
    assert "skips steps too" in str(technique(reusing).last_summary().details)


def two_prompts(studio):
    context, details = studio.positive[0]
    first = [context, {**details, "start_percent": 0.0, "end_percent": 0.5}]
    return {"positive": [first, [context * 0.5, {**details, "start_percent": 0.5, "end_percent": 1.0}]], "cfg": 1.0}


def scheduled_lora(studio):
    import comfy.hooks

    sampling = changes.lora_hook(studio)
    frames = comfy.hooks.HookKeyframeGroup()
    frames.add(comfy.hooks.HookKeyframe(strength=1.0, start_percent=0.0))
    frames.add(comfy.hooks.HookKeyframe(strength=0.1, start_percent=0.5))
    sampling["positive"][0][1]["hooks"].set_keyframes_on_hooks(frames)
    return sampling


@pytest.mark.parametrize("change", often([two_prompts], [two_prompts, scheduled_lora]))
def test_what_changes_within_a_run_has_a_warm_up_of_its_own(studio, change):
    model = reuse(studio, studio.model)
    computed, behind = computed_steps(studio, model, 20, 0.5, **change(studio))
    done = outcome(model)
    assert done.evaluations == 20 and len(computed) == done.computed
    assert not set(range(behind)) <= computed  # there was something to forget
    assert {behind, behind + 1, behind + 2} <= computed, (behind, computed)
    assert done.forecast >= 3


@pytest.mark.parametrize("knows", [True, False])
def test_nothing_is_forecast_across_a_change_of_the_way_attention_goes(studio, knows):
    """Of a node whose attention takes another way below a noise level, as ComfyUI's sparse attention does."""
    below, asked = float(studio.model.model.model_sampling.percent_to_sigma(0.5)), []

    def sparse(*, layout, options, model):
        assert layout is None and model.input_blocks and options["uuids"]
        asked.append(float(options["sigmas"][0]))
        return ("sparse" if asked[-1] < below else "dense",) if knows else None

    theirs = studio.model.clone()
    theirs.model_options["transformer_options"]["attention_backend_history_v1"] = {"sparse": sparse}
    model = reuse(studio, theirs)
    computed, behind = computed_steps(studio, model, 20, 0.5)
    assert asked and {behind, behind + 1, behind + 2} <= computed, (behind, computed)
    if knows:
        assert not set(range(behind)) <= computed and outcome(model).forecast >= 3
    else:
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
