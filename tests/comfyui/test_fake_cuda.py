"""A GPU's rules on a CPU: no step waits for the device, nothing is made on the wrong one, dtypes and shapes are right.

Real networks of ComfyUI on fake CUDA tensors, called with what a real sampler hands them; see ``comfy_host.fake_cuda``.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from cases import often
from comfy_host import checkpoints, fake_cuda, in_process, vaes
from comfy_host.transformers import ALL, build, conditioning, latent
from paceline.optimizers.core.errors import UnsupportedModel
from paceline.optimizers.guard import Guard
from paceline.optimizers.in_comfyui.run.sampling_run import RUN, SamplingRun
from vae_calls import decoded, on_fake_cuda

CUSTOM = {"preset": "custom", "max_downsample": "8", "ratio": 0.5}
TOME = "PacelineApplyToMe"
TECHNIQUES = {
    "kv_downsample": [(TOME, {**CUSTOM, "method": "kv_downsample"})],
    "merge": [(TOME, {**CUSTOM, "method": "merge"})],
    "merge everywhere": [(TOME, {**CUSTOM, "method": "merge", "merge_crossattn": True, "merge_mlp": True})],
    "sdpa": [("PacelineSetAttentionProcessor", {"backend": "sdpa"})],
    "fuse": [("PacelineFuseQKV", {})],
}
UNETS = {
    "sd15": lambda dtype: checkpoints.tiny_sd15(width=32, context=48, dtype=dtype),
    "sdxl": lambda dtype: checkpoints.sdxl_layout(width=32, head_channels=32, context=64, dtype=dtype),
}
# Their own networks move a layer to the device of the input, look for the image's tokens, or read the noise level.
WAIT = ("hunyuan_video_15", "hidream_o1", "minimax_h3")
TRANSFORMERS = [name for name in ALL if name not in WAIT]
OFTEN = ["sd15", "wan_vace"]


@pytest.fixture(scope="module")
def call_of(studio):
    """What a real sampler calls the network of a family with; made once for each."""
    calls = {}

    def sampled(name, model):
        if name in UNETS:
            positive, negative = (in_process.random_conditioning(model, seed=seed) for seed in (1, 2))
            empty = torch.zeros(1, 4, 24, 16)
        else:
            positive, negative = (conditioning(name, 20, seed=seed) for seed in (1, 2))
            empty = latent(name, 16, 24)
        in_process.sample(model, positive, negative, empty, steps=1, scheduler="simple")

    def find(name):
        if name not in calls:
            calls[name] = fake_cuda.record_call(made(name), lambda model: sampled(name, model))
        return calls[name]

    return find


def made(name, dtype=torch.float32):
    return UNETS[name](dtype) if name in UNETS else build(name, dtype=dtype)


def step(model, call, batch=1):
    mode = fake_cuda.fake_cuda()
    fake_cuda.move_model(model, mode)
    return fake_cuda.run(model, call, mode, batch)


def is_active(technique) -> bool:
    """Return whether a technique was active in its last run, or had nothing to do there."""
    summary = technique.last_summary()
    return summary.state == "active" or summary.headline.endswith("so it changes nothing")


@pytest.mark.parametrize("dtype", often([torch.float16], [torch.float16, torch.bfloat16]), ids=["fp16", "bf16"])
@pytest.mark.parametrize("name", often(OFTEN, ["sd15", "sdxl", *TRANSFORMERS]))
def test_no_technique_waits_for_the_gpu_or_mixes_devices(studio, call_of, name, dtype):
    call, batch = call_of(name), 2
    plain, _ = step(made(name, dtype), call, batch)
    served = []
    for title, nodes in TECHNIQUES.items():
        model = made(name, dtype)
        try:
            for node, inputs in nodes:
                model = studio.run(node, model=model, **inputs)
        except UnsupportedModel:
            continue
        found, _ = step(model, call, batch)
        assert (found.device, found.dtype, found.shape) == (plain.device, plain.dtype, plain.shape), title
        for technique in model.get_attachment("paceline").techniques:
            assert is_active(technique), (title, technique.title, technique.last_summary())
        served.append(title)
    assert "sdpa" in served
    assert ("merge" in served) == ("kv_downsample" in served) == (name in UNETS)


@pytest.mark.parametrize("name", often(["flux"], ["sd15", "flux"]))
def test_the_int8_kernel_of_a_gpu_does_not_wait_for_it(studio, call_of, name):
    call = call_of(name)
    plain, _ = step(made(name, torch.float16), call)
    model = studio.run("PacelineQuantizeInt8", model=made(name, torch.float16), strict=True)
    technique = model.get_attachment("paceline").find("int8")
    found, _ = step(model, call)
    assert (found.device, found.dtype, found.shape) == (plain.device, plain.dtype, plain.shape)
    assert technique.last_summary().state == "active"


def test_a_vae_in_another_precision_does_not_wait_for_the_gpu(studio):
    vae = studio.run("PacelineVAEPrecision", vae=vaes.kl(), dtype="bf16", channels_last=True)
    with on_fake_cuda(vae) as network:
        latent = network.encode(decoded(network, torch.bfloat16))
    assert (latent.dtype, latent.device.type) == (torch.bfloat16, "cuda")


# Operators that a method adds to one self-attention, and to one call of the network, from the second call of a run on.
# kv_downsample gathers once, before projection. merge: cast, length, limit, quotient and cast of the tokens, two
# gathers, product, maximum, NaN, sort; three lookups, their place, a comparison, a sum, a lookup, one less, sort,
# search and two ranges for the slots; mean and spread. Its draw is shared by the blocks of a level.
LAUNCHES = {"kv_downsample": (1, 0), "merge": (24, 3 * 41 + 8)}


@pytest.mark.parametrize("title", LAUNCHES)
def test_a_block_is_given_few_operators(studio, call_of, title):
    call, mode = call_of("sd15"), fake_cuda.fake_cuda()
    _, plain = step(made("sd15", torch.float16), call)
    [(node, inputs)] = TECHNIQUES[title]
    model = studio.run(node, model=made("sd15", torch.float16), **inputs)
    fake_cuda.move_model(model, mode)
    for _ in range(2):
        _, found = fake_cuda.run(model, call, mode)
    (technique,) = model.get_attachment("paceline").techniques
    blocks = len(technique.runs.latest.activity.used)
    block, once = LAUNCHES[title]
    assert blocks and 0 < found.total - plain.total <= block * blocks + once, (found.total - plain.total, blocks)


def test_fused_projections_launch_fewer_kernels(studio, call_of):
    call = call_of("sd15")

    def launches(fused):
        model, mode = made("sd15", torch.float16), fake_cuda.fake_cuda()
        model = studio.run("PacelineFuseQKV", model=model) if fused else model
        fake_cuda.move_model(model, mode)
        fake_cuda.run(model, call, mode)  # joins the weights
        return fake_cuda.run(model, call, mode)[1].total

    assert launches(False) - launches(True) == 2 * 7  # 7 blocks, two launches less in each


def test_reading_a_number_and_mixing_devices_are_found(studio, call_of):
    """The fixture itself must be able to fail."""
    call = call_of("sd15")
    for wrong, error in (
        (lambda x: x * float(x.sum()), "DataDependentOutputException"),
        (lambda x: x + torch.ones(1), "FakeTensorDeviceMismatchError"),
    ):
        model = made("sd15")
        model.set_model_attn1_patch(lambda n, context, value, extra, wrong=wrong: (wrong(n), context, value))
        with pytest.raises(Exception) as caught:
            step(model, call)
        assert type(caught.value).__name__ == error or error in repr(caught.value.__cause__), caught.value


@pytest.mark.parametrize("name", often(["sd15"], ["sd15", "sdxl", *TRANSFORMERS]))
def test_the_guard_does_not_wait_for_the_gpu(studio, call_of, name):
    """In the first evaluation, with its comparisons, and in later ones."""
    call, model = call_of(name), made(name, torch.float16)
    plain, _ = step(made(name, torch.float16), call)
    model = studio.attention(model, "sdpa_math")
    policy = model.get_attachment("paceline").find("attention").policy
    policy.backend = replace(policy.backend, exact=False)
    run = SamplingRun()
    run.guard = Guard(("sdpa_math",), can_begin_again=True)
    watched = replace(call, options={**call.options, RUN: run})
    mode = fake_cuda.fake_cuda()
    fake_cuda.move_model(model, mode)
    launched = []
    for _ in range(3):
        found, launches = fake_cuda.run(model, watched, mode)
        assert (found.device, found.dtype, found.shape) == (plain.device, plain.dtype, plain.shape)
        launched.append(launches.total)
    assert launched[1] == launched[2] < launched[0]
    _, without = fake_cuda.run(model, call, mode)
    assert launched[1] - without.total == 1  # one sum; on a real GPU a copy and an event as well
