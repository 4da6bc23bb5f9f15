"""Reuse Steps beside everything else that can be on a MODEL or in its sampling, on real models with random weights."""

from functools import partial

import model_changes as changes
import pytest
import torch
from cases import often
from comfy_host import checkpoints
from compiled_models import with_model_of_its_own
from distances import relative
from paceline.optimizers.core.errors import UnsupportedModel
from reusing import Calls, outcome, reuse, technique
from torch._dynamo.utils import counters

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def studio(studio):
    """With a smaller model: each check draws three pictures of many steps."""
    return with_model_of_its_own(studio, checkpoints.smallest_unet(levels=2))


def check(studio, model, steps=16, **sampling):
    """Sample, and check that evaluations were left out; random graphs prove that a budget of 0 changes no bit."""
    reusing = reuse(studio, model)
    found = studio.sample(reusing, steps=steps, **sampling)
    done = outcome(reusing)
    assert done.evaluations >= steps and done.forecast >= 3, done
    assert found.isfinite().all()
    return done


OFTEN = ("tome", "perturbed_attention")
"""The rest proves the same for other patches."""


@pytest.mark.parametrize("change", often(OFTEN, [name for name in changes.MODEL_CHANGES if name != "easycache"]))
def test_beside_other_nodes(studio, core_node, change):
    check(studio, changes.MODEL_CHANGES[change](studio, core_node, studio.model))


def with_part(studio, **options):
    """A second text for a part of the picture or of the schedule."""
    context, details = studio.positive[0]
    return {"positive": [*studio.positive, [context * 0.5, {**details, **options}]]}


SAMPLERS = ("euler", "euler_ancestral", "dpmpp_2m", "dpmpp_2m_sde", "dpmpp_sde", "heun", "dpmpp_2s_ancestral", "uni_pc",
            "ddim", "lms", "res_multistep", "euler_cfg_pp")  # fmt: skip
SAMPLING = changes.SAMPLING_CHANGES | {name: lambda _, name=name: {"sampler": name} for name in SAMPLERS}
SAMPLING["area"] = partial(with_part, area=(16, 16, 0, 0), strength=1.0, set_area_to_bounds=False)
SAMPLING["range"] = partial(with_part, start_percent=0.0, end_percent=0.6)
del SAMPLING["more_steps"]


@pytest.mark.parametrize("change", often(("lora_hook", "batch_of_two", "area", "dpmpp_2m_sde", "heun"), SAMPLING))
def test_beside_other_sampling(studio, change):
    check(studio, studio.model, **SAMPLING[change](studio))


@pytest.mark.parametrize("length", often([2], [1, 2]))
@pytest.mark.parametrize("around", [False, True], ids=["below", "around"])
def test_windows_of_another_node_are_parts_of_the_picture(studio, length, around):
    """Each call for passes is of a window, and the first one alone is no mean picture."""

    def windows(executor, base, conds, x, timestep, options):
        parts = [slice(at, at + length) for at in range(0, len(x), length)]
        found = [executor(base, conds, x[part], timestep[part], options) for part in parts]
        return [torch.cat(one) for one in zip(*found, strict=True)]

    below = studio.model.clone()
    below.add_wrapper_with_key("calc_cond_batch", "windows", windows)
    reusing = reuse(studio, studio.model if around else below)
    if around:
        reusing.add_wrapper_with_key("calc_cond_batch", "windows", windows)
    latent = torch.zeros(4, 4, 16, 16)
    plain, found = (studio.sample(model, steps=16, latent=latent) for model in (below, reusing))
    assert outcome(reusing).evaluations == 16 and relative(found, plain) < 0.1


def test_a_wrapper_of_another_node_may_name_the_arguments_of_the_sampler(studio):
    def naming(executor, guider, sigmas, extra_args, callback, noise, latent_image, denoise_mask, disable_pbar):
        named = {"latent_image": latent_image, "denoise_mask": denoise_mask, "disable_pbar": disable_pbar}
        return executor(guider, sigmas, extra_args, callback=callback, noise=noise, **named)

    model = studio.model.clone()
    model.add_wrapper_with_key("sampler_sample", "another", naming)
    check(studio, model)


def test_a_sampler_that_chooses_its_steps_is_left_alone(studio):
    model = reuse(studio, studio.model)
    plain = studio.sample(studio.model, steps=10, sampler="dpm_adaptive")
    assert torch.equal(studio.sample(model, steps=10, sampler="dpm_adaptive"), plain)
    assert "dpm_adaptive chooses its steps" in str(technique(model).last_summary().details)


def test_a_controlnet_is_left_out_too(studio):
    sampling = changes.controlnet(studio)
    network = sampling["positive"][0][1]["control"].control_model
    model = reuse(studio, studio.model)
    with Calls(network) as control, Calls(studio.model.model.diffusion_model) as unet:
        studio.sample(model, steps=12, **sampling)
    # Positive and negative pass have other inputs, so the network is called for each.
    assert control.count == outcome(model).computed < 12
    assert unet.count == 2 * control.count


def test_compiled_models_are_neither_compiled_anew_nor_broken(small):
    torch._dynamo.reset()
    compiled = {"backend": "eager", "fullgraph": True, "strict": True}
    model = small.run("PacelineCompileUNet", model=reuse(small, small.model), **compiled)
    plain = small.sample(reuse(small, small.model), steps=12)
    counters.clear()
    assert torch.equal(small.sample(model, steps=12), plain)
    assert outcome(model).forecast >= 3
    assert counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"]
    torch._dynamo.reset()


@pytest.mark.parametrize("mark", ["rel_l1_thresh", "teacache_rel_l1_thresh"])
def test_teacache_is_known_by_its_transformer_options(studio, mark):
    cached = studio.model.clone()
    cached.model_options["transformer_options"][mark] = 0.4
    with pytest.raises(UnsupportedModel, match="TeaCache is on this MODEL already"):
        reuse(studio, cached, strict=True)


@pytest.mark.parametrize("kind", often(("EasyCacheNode",), ["EasyCacheNode", "LazyCacheNode"]))
def test_one_cache_at_a_time(studio, core_node, kind):
    options = {"reuse_threshold": 0.5, "start_percent": 0.0, "end_percent": 1.0, "verbose": False}
    cached = core_node("comfy_extras.nodes_easycache", kind, model=studio.model, **options)
    assert reuse(studio, cached, strict=False) is cached  # handed on, with the reason at the node
    with pytest.raises(UnsupportedModel, match="EasyCache or LazyCache is on this MODEL already"):
        reuse(studio, cached, strict=True)
    later = core_node("comfy_extras.nodes_easycache", kind, model=reuse(studio, studio.model), **options)
    assert torch.equal(studio.sample(later, steps=9), studio.sample(cached, steps=9))
    assert "this node does nothing" in str(technique(later).last_summary().details)
