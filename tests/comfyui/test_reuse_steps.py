"""Reuse Steps on real models: what it leaves out with guiders and on schedules of templates, without a trace."""

import pytest
import torch
from cases import often
from comfy_host import checkpoints, in_process, transformers
from reusing import Calls, guided, outcome, reuse, technique

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", often(["ltx2"], transformers.WITH_SOUND))
def test_each_frame_and_the_sound_are_judged(studio, name):
    """Three frames and the sound; a mask that keeps the first frame and the sound leaves two."""
    from comfy.nested_tensor import NestedTensor

    model, prompt = reuse(studio, transformers.build(name)), transformers.conditioning(name)
    samples = transformers.latent(name)
    masks = [torch.ones_like(stream[:, :1]) for stream in samples.unbind()]
    masks[0][:, :, 0] = masks[1][:] = 0
    for latent, parts in ({"samples": samples}, 4), ({"samples": samples, "noise_mask": NestedTensor(masks)}, 2):
        in_process.sample(model, prompt, prompt, latent, 3, 16, 2.0, "euler", "simple")
        assert f"of the worst of {parts} frames and streams" in str(technique(model).last_summary().details)


def test_a_sampler_has_the_name_in_the_menu(studio):
    """In a run the sampler is a function; the constants of the budget are known by the name in the menu."""
    from comfy.samplers import SAMPLER_NAMES, sampler_object
    from paceline.optimizers.in_comfyui.comfy_step_reuse import sampler_name
    from paceline.optimizers.models.samplers import SAMPLERS

    assert SAMPLERS.keys() - set(SAMPLER_NAMES) == {"restart"}  # only WebUI has it
    found = {name: sampler_name(sampler_object(name)) for name in SAMPLER_NAMES}
    assert {name: said for name, said in found.items() if said != name} == {"ddim": "euler"}


def test_the_first_model_of_a_guider_decides_for_both_and_the_second_says_so(studio, core_node):
    """ComfyUI runs both models with the nodes of the first one."""
    second = checkpoints.tiny_sd15(seed=5, width=32, context=48)
    made = {"positive": studio.positive, "negative": studio.negative, "cfg": 4.0}
    custom, model = "comfy_extras.nodes_custom_sampler", reuse(studio, studio.model)
    with Calls(second.model.diffusion_model) as other:
        guided(model, core_node(custom, "DualModelGuider", model=model, model_negative=second, **made))
    assert outcome(model).forecast >= 3 and other.count == outcome(model).computed
    reused = reuse(studio, second)
    studio.sample(reused, steps=12)
    assert outcome(reused).forecast >= 3  # which is over, and must not be shown again
    for first in (studio.model, reuse(studio, studio.model, budget=0.0)):
        guided(first, core_node(custom, "DualModelGuider", model=first, model_negative=reused, **made))
        said = technique(reused).last_summary()
        assert said.state == "inactive" and "guider" in str(said.details), said
        assert outcome(reused).evaluations == 0


def test_a_conditioning_without_entries_is_left_alone(studio):
    """ComfyUI takes zeros for its pass, and pictures moved six times as far as allowed; at a scale of 1 it has none."""
    model = reuse(studio, studio.model)
    plain = studio.sample(studio.model, steps=20, negative=[])
    assert torch.equal(studio.sample(model, steps=20, negative=[]), plain)
    assert "a conditioning is empty" in technique(model).last_summary().details[0]
    studio.sample(model, steps=20, negative=[], cfg=1.0)
    assert outcome(model).forecast >= 3


def left_out(studio, name, sampler, steps, scheduler, guidance=None):
    """Sample as SamplerCustomAdvanced does, without guidance by BasicGuider; return what Reuse Steps says of it.

    It must be near the plain picture, and another one only where steps were left out.
    """
    from comfy_extras import nodes_custom_sampler as nodes

    plain = transformers.build(name)
    faster = reuse(studio, plain, budget=1.0)
    positive, negative = (transformers.conditioning(name, seed=seed) for seed in (1, 2))
    levels = nodes.BasicScheduler.execute(plain, scheduler, steps, 1.0)[0].tolist()
    sigmas = nodes.ManualSigmas.execute(", ".join(f"{level:.6f}" for level in levels))[0]
    noise, solver = nodes.RandomNoise.execute(5)[0], nodes.KSamplerSelect.execute(sampler)[0]

    def draw(model):
        guider = nodes.BasicGuider.execute(model, positive)
        if guidance is not None:
            guider = nodes.CFGGuider.execute(model, positive, negative, guidance)
        latent = {"samples": transformers.latent(name)}
        drawn = nodes.SamplerCustomAdvanced.execute(noise, guider[0], solver, sigmas, latent)[0]["samples"]
        return drawn.unbind() if drawn.is_nested else [drawn]

    pairs, found = list(zip(draw(plain), draw(faster), strict=True)), technique(faster).last_summary()
    for whole, one in pairs:
        assert (one - whole).norm() < 0.3 * whole.norm()
        assert ((one - whole).norm() > 0) == (found.counts.get("forecast", 0) > 0)
    return found


MANY = [("minimax_h3", "res_multistep", 20, None), ("flux2", "er_sde", 15, 1.0), ("flux2", "er_sde", 25, 2.5)]
MANY += [("qwen_image21", "euler", 25, 1.0)]


@pytest.mark.parametrize(("name", "sampler", "steps", "guidance"), often(MANY[:1], MANY, several=True))
def test_of_many_steps_some_are_left_out_and_counted(studio, name, sampler, steps, guidance):
    counts = left_out(studio, name, sampler, steps, "simple", guidance).counts
    assert counts["evaluations"] == steps and counts["forecast"] >= 4


FEW = [("euler", steps, "simple") for steps in (5, 6, 8, 12)]
FEW += [(sampler, 8, "simple") for sampler in ("res_multistep", "dpmpp_2m", "er_sde", "lcm", "uni_pc", "dpmpp_sde")]
FEW += [("euler", 8, "sgm_uniform"), ("dpmpp_2m", 8, "karras"), ("res_multistep", 6, "beta")]


@pytest.mark.parametrize(("sampler", "steps", "scheduler"), often(FEW[::3], FEW, several=True))
def test_of_few_steps_late_ones_are_left_out_where_the_sampler_allows_it(studio, sampler, steps, scheduler):
    found, known = (
        left_out(studio, "flux2", sampler, steps, scheduler),
        sampler in ("euler", "dpmpp_2m", "res_multistep"),
    )
    assert found.counts.get("forecast", 0) == ((1 if steps < 8 else 2 if steps < 12 else 3) if known else 0), found
    assert ("add no noise (euler" in str(found.details)) != known
