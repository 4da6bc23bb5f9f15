"""Apply ToMe on ComfyUI's own UNets and samplers, their relatives, and with ``residual``."""

import pytest
import torch
from attention_calls import attention_lengths
from cases import often
from comfy_host import checkpoints, in_process
from distances import relative
from our_nodes import technique
from reusing import guided

CUSTOM = "comfy_extras.nodes_custom_sampler"


@pytest.mark.parametrize(
    ("settings", "sizes", "blocks"),
    [
        ({"max_downsample": "2"}, {(192, 192), (384, 77), (48, 48), (96, 77)}, "7 of 7 self-attention blocks"),
        ({"method": "kv_downsample", "ratio": 0.75}, {(384, 117), (384, 77), (96, 96), (96, 77)}, "3 of 7 self-"),
        ({"merge_attn": False, "merge_crossattn": True}, {(384, 384), (192, 77), (96, 96), (96, 77)}, "3 of 7 blocks"),
    ],
    ids=["merge", "kv_downsample", "text"],
)
def test_attention_gets_the_tokens_that_are_left(studio, settings, sizes, blocks):
    model = studio.tome(studio.model, **settings)
    assert set(attention_lengths(model, studio.sample)) == sizes
    report = studio.report(model)
    assert f"active in {blocks}" in report and "fallback" not in report


def test_two_clones_in_one_sampling_run_keep_their_own_settings(studio, core_node):
    """A guider with two models: the positive pass merges by one clone's settings, the negative by the other's."""
    a, b = studio.tome(studio.model, ratio=0.25), studio.tome(studio.model, ratio=0.7)

    def sample(first, second):
        models = {"model": first, "model_negative": second}
        made = {"positive": studio.positive, "negative": studio.negative, "cfg": 5.0}
        return guided(first, core_node(CUSTOM, "DualModelGuider", **models, **made), steps=2)

    both_a, mixed, mixed_other_way, both_b = sample(a, a), sample(a, b), sample(b, a), sample(b, b)
    plain_negative = sample(a, studio.model)
    results = [both_a, mixed, mixed_other_way, both_b, plain_negative]
    for index, one in enumerate(results):
        for other in results[index + 1 :]:
            assert not torch.equal(one, other)
    sample(a, b)
    assert "384 -> 288 tokens" in studio.report(a) and "in 2 of" not in studio.report(a)
    assert "384 -> 116 tokens" in studio.report(b)


def test_inputs_of_older_workflows_are_ignored_with_a_sentence(studio):
    older = studio.tome(studio.model, seed=1, start_percent=0.2, end_percent=0.7)
    assert torch.equal(studio.sample(older), studio.sample(studio.tome(studio.model)))
    assert "seed, start_percent and end_percent of the workflow are ignored" in policy(older).describe()
    assert "ignored" not in policy(studio.tome(studio.model)).describe()
    kept = studio.tome(studio.model, residual="auto")
    assert torch.equal(studio.sample(kept), studio.sample(studio.tome(studio.model)))
    assert "no residual (it is for keys and values)" in policy(kept).describe()


LEVELS = {"num_res_blocks": [1, 1], "channel_mult": [1, 2]}
PLAIN = checkpoints.SD15_CONFIG | LEVELS | {"model_channels": 32, "context_dim": 48}
SD2 = PLAIN | {"use_linear_in_transformer": True}
REFINER = checkpoints.SDXL_CONFIG | {
    "model_channels": 32,
    "context_dim": 48,
    "adm_in_channels": 2560,
    "num_res_blocks": [1, 1, 1, 1],
    "channel_mult": [1, 2, 4, 4],
    "transformer_depth": [0, 4, 4, 0],
    "transformer_depth_output": [0, 0, 4, 4, 4, 4, 0, 0],
    "transformer_depth_middle": 4,
}
SVD = SD2 | {
    "in_channels": 8,
    "num_classes": "sequential",
    "adm_in_channels": 768,
    "use_temporal_attention": True,
    "use_temporal_resblock": True,
    "video_kernel_size": [3, 1, 1],
    "extra_ff_mix_layer": True,
    "use_spatial_context": True,
    "merge_strategy": "learned_with_images",
}

MODELS = {
    "SD15 inpaint": ("SD15", PLAIN | {"in_channels": 9}),
    "instruct-pix2pix": ("SD15_instructpix2pix", PLAIN | {"in_channels": 8}),
    "SD 2.x": ("SD20", SD2),
    "SDXL refiner": ("SDXLRefiner", REFINER),
    "SVD": ("SVD_img2vid", SVD),
}


@pytest.fixture(scope="module")
def unets(studio):
    made = {}

    def get(name):
        if name not in made:
            import comfy.supported_models

            config, settings = MODELS[name]
            base = getattr(comfy.supported_models, config)
            narrow = type(config, (base,), {"unet_extra_config": {"num_heads": -1, "num_head_channels": 16}})
            made[name] = checkpoints._patcher(checkpoints._base_model(narrow, dict(settings), torch.float32, "cpu"), 0)
        return made[name]

    return get


def sample(model, frames=1):
    generator = torch.Generator().manual_seed(1)
    positive, negative = (
        [[torch.randn(1, 77, 48, generator=generator), {"pooled_output": torch.randn(1, 1280, generator=generator)}]]
        for _ in range(2)
    )
    return in_process.sample(model, positive, negative, torch.zeros(frames, 4, 24, 16), steps=1, seed=7)


BOTH = [(name, method) for method in ("merge", "kv_downsample") for name in MODELS]


# Each relative with every change, and each method with two of them.
@pytest.mark.parametrize(("name", "method"), often([*BOTH[:2], *BOTH[7:]], BOTH, several=True))
def test_every_unet_of_the_family_is_served(studio, unets, name, method):
    frames = 3 if name == "SVD" else 1
    baseline = sample(unets(name), frames)
    model = studio.tome(unets(name), method=method, ratio=0.5)
    reduced = sample(model, frames)
    report = studio.report(model)
    assert reduced.isfinite().all() and not torch.equal(reduced, baseline)
    assert "active in " in report and "self-attention blocks" in report and "fallback" not in report
    assert ("96 -> " if name == "SDXL refiner" else "384 -> ") in report  # which has none at the latent's own size


KEYS = {"method": "kv_downsample", "ratio": 0.75, "max_downsample": "2"}
STEPS = 8
"""With these, the first three steps are full where three quarters are left out."""


def policy(model):
    return technique(model).policy


@pytest.mark.parametrize(
    ("sampler", "times"), often([("heun", 5)], [("euler", 5), ("heun", 5), ("dpm_2", 1.2)], several=True)
)
def test_it_is_much_closer_than_reduced_attention_alone(studio, sampler, times):
    plain = studio.sample(studio.model, steps=STEPS, sampler=sampler)
    model, alone = (studio.tome(studio.model, residual=one, **KEYS) for one in ("auto", "off"))
    near, far = (relative(studio.sample(one, steps=STEPS, sampler=sampler), plain) for one in (model, alone))
    assert near < far / times
    twice = 2 if sampler in ("heun", "dpm_2") else 1
    calls = STEPS * twice - (twice - 1)  # the last step of the solvers that evaluate twice is Euler's
    assert (policy(model).kept.full, policy(model).kept.added) == (3, calls - 3)
    report = studio.report(model)
    assert f"residual: 3 of {calls} model calls computed attention both ways" in report
    assert "fallback" not in report and "left out: " not in report


def test_attention_is_computed_both_ways_in_full_steps_only(studio):
    """Another pack's override stays outside, and sees each attention once, as without it."""
    model = studio.tome(studio.model, **KEYS | {"max_downsample": "1"}, residual="auto")
    seen = attention_lengths(model, lambda one: studio.sample(one, steps=STEPS))
    assert (seen.count((384, 384)), seen.count((384, 96))) == (3 * 3, 5 * 3)  # blocks of that size times steps


def test_passes_one_by_one_give_the_same_image_as_together(studio):
    """As where memory is short."""
    import comfy.samplers

    def one_by_one(args):
        run = comfy.samplers.calc_cond_batch
        options = {k: v for k, v in args["model_options"].items() if k != "sampler_calc_cond_batch_function"}
        return [run(args["model"], [cond], args["input"], args["sigma"], options)[0] for cond in args["conds"]]

    together, apart = (studio.tome(studio.model, residual="auto", **KEYS) for _ in range(2))
    apart.set_model_sampler_calc_cond_batch_function(one_by_one)
    assert relative(*(studio.sample(one, steps=STEPS) for one in (together, apart))) < 1e-5


def test_regions_of_one_picture_each_have_their_own(studio):
    context, details = studio.positive[0]
    areas = [{"area": (12, 16, 12 * number, 0), "strength": 1.0} for number in (0, 1)]
    regions = [[context + 0.3 * number, details | area] for number, area in enumerate(areas)]
    plain = studio.sample(studio.model, steps=STEPS, positive=regions)
    model, alone = (studio.tome(studio.model, residual=one, **KEYS) for one in ("auto", "off"))
    near, far = (relative(studio.sample(one, steps=STEPS, positive=regions), plain) for one in (model, alone))
    assert near < far / 5 and "left out" not in studio.report(model)
