"""Diffusers networks under the rules of a GPU, on a CPU: no call waits for the device or mixes devices.

Real networks on fake CUDA tensors, called with what a real pipeline hands on; see ``comfy_host.fake_cuda``.
"""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest
import torch
from cases import often
from comfy_host import fake_cuda
from paceline import Attention, FuseQKV, Precision, TokenMerging, optimize
from paceline.optimizers.core.errors import PacelineError
from paceline.optimizers.in_diffusers import pipeline_run
from paceline.optimizers.in_diffusers.host import host_of
from paceline.optimizers.in_diffusers.pipeline_run import PipelineRun
from random_pipelines import picture, small

TECHNIQUES = {
    "kv_downsample": TokenMerging(method="kv_downsample", max_downsample=8, residual="off"),
    # One block alone on a level makes a tensor of one number, which fake tensors keep on the CPU.
    "merge": TokenMerging(method="merge", max_downsample=4),
    "fuse": FuseQKV(),
    "vanilla": Attention("vanilla"),
    "bf16": Precision("bf16"),
}
DTYPES = (torch.float16, torch.bfloat16)
NAMES = ("sd15", "if-1", "flux", "sd3", "sd15-controlnet", "sd15-img2img", "sd15-inpaint", "sdxl", "ssd1b", "if-2")


@cache
def recorded(name):
    """What a real pipeline calls its denoiser with."""
    pipeline, found = small(name), []
    note = lambda module, args, kwargs: found.append((args, kwargs))  # noqa: E731
    handle = pipeline.denoiser.register_forward_pre_hook(note, with_kwargs=True)
    picture(pipeline, steps=2)
    handle.remove()
    return found[0]


def in_dtype(value, dtype):
    """Return the floating point tensors of ``value`` in ``dtype``, as pipelines hand them on."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.to(dtype)
    if isinstance(value, dict):
        return {key: in_dtype(item, dtype) for key, item in value.items()}
    return type(value)(in_dtype(item, dtype) for item in value) if type(value) in (list, tuple) else value


def call(name, *settings, dtype=torch.float32, calls=2):
    """Call a denoiser on fake CUDA as in a run; return its output, the last call's launches, and states."""
    pipeline, (args, kwargs) = small(name), recorded(name)
    pipeline.denoiser.to(dtype)
    if name not in ("flux", "sd3"):
        from diffusers import EulerDiscreteScheduler  # it counts its steps, as most do

        pipeline.pipe.scheduler = EulerDiscreteScheduler()
    pipeline.pipe.scheduler.set_timesteps(2, **({"mu": 1.0} if name == "flux" else {}))
    with optimize(pipeline.pipe, *settings, components=["unet" if hasattr(pipeline.pipe, "unet") else "transformer"]):
        mode = fake_cuda.fake_cuda()
        dtype = next(pipeline.denoiser.parameters()).dtype
        fake_cuda.move_network(pipeline.denoiser, mode)
        with mode:
            args, kwargs = (in_dtype(fake_cuda.to_cuda(value, mode), dtype) for value in (args, kwargs))
        host = host_of(pipeline.denoiser)
        techniques = () if host is None else host.techniques
        # What the first call of a run may wait for, once: timesteps, and the size of the image.
        if host is not None:
            host.begin_run()
            host.run.moved_to(pipeline.pipe, None)
            host.run.schedule()
        for _ in range(calls):
            with torch.inference_mode(), mode, fake_cuda.Launches() as launches:
                output = pipeline.denoiser(*args, **kwargs)
        states = {technique.title: technique.policy.summarize(technique.activity) for technique in techniques}
        return (output[0] if isinstance(output, tuple) else output.sample), launches, states


@pytest.mark.parametrize(("name", "dtype"), often([("sd15", torch.float16)], product(NAMES, DTYPES), several=True))
def test_no_technique_waits_for_the_gpu_or_mixes_devices(name, dtype):
    plain, _, _ = call(name, dtype=dtype)
    served = [title for title in TECHNIQUES if active(name, plain, dtype, title)]
    assert {"vanilla", "fuse"} <= set(served)
    for title in ("kv_downsample", "merge"):
        assert (title in served) == name.startswith(("sd1", "sdxl", "ssd"))


def active(name, plain, dtype, *titles):
    """Run a denoiser with techniques and compare with the plain one; False if it cannot have them."""
    try:
        found, _, states = call(name, *(TECHNIQUES[title] for title in titles), dtype=dtype)
    except PacelineError:
        return False
    assert (found.device, found.shape) == (plain.device, plain.shape)
    assert found.dtype == (torch.bfloat16 if "bf16" in titles else plain.dtype)
    assert all(summary.state in ("active", "partly") for summary in states.values()), states
    return True


def test_a_scheduler_that_counts_no_steps_is_asked_by_place_and_not_by_value(monkeypatch):
    """DDPM, DDIM, PNDM and LCM: to read the timestep would wait for the GPU in every step."""
    read, seen = [], []
    number, index = pipeline_run._number, PipelineRun.index

    def counted(self):
        seen.append(index(self))
        return seen[-1]

    monkeypatch.setattr(pipeline_run, "_number", lambda timestep: read.append(timestep) or number(timestep))
    monkeypatch.setattr(PipelineRun, "index", counted)
    pipeline = small("sd15")
    assert not hasattr(pipeline.pipe.scheduler, "step_index")  # PNDM, which takes its second step twice
    with optimize(pipeline.pipe, TECHNIQUES["merge"], components=["unet"]):
        picture(pipeline, steps=4)
    assert seen == [0, 1, 1, 3, 4] and not read
