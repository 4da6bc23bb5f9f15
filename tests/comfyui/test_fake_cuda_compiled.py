"""Compiled networks under a GPU's rules on a CPU: one graph each, nothing waits, nothing is on the wrong device.

``aot_eager`` traces as inductor does, and generates no code. See ``fake_cuda``.
"""

from __future__ import annotations

import pytest
import torch
from cases import often
from comfy_host import checkpoints, fake_cuda, in_process, vaes
from compiled_models import state
from paceline.core.technique import attach
from paceline.optimizers.compilation.compiler import Compiler
from paceline.optimizers.compilation.settings import NetworkSettings
from paceline.optimizers.hosts.comfyui.compilation.controlnet import compile_controlnet
from paceline.optimizers.hosts.comfyui.compilation.unet import CompileUNet
from paceline.optimizers.hosts.comfyui.compilation.vae import compile_vae
from paceline.optimizers.hosts.comfyui.controlnet import ControlNetTarget
from paceline.optimizers.hosts.comfyui.method_proxy import stack_on
from paceline.optimizers.hosts.comfyui.model import ModelTarget
from paceline.optimizers.hosts.comfyui.vae import VAETarget
from vae_calls import decoded, on_fake_cuda

from .test_fake_cuda import CUSTOM, TOME, is_active

HOW = NetworkSettings(backend="aot_eager", fullgraph=True, strict=True)
STACKS = {
    "kv_downsample and all that is lossless": [
        ("PacelineSetAttentionProcessor", {"backend": "vanilla"}),
        ("PacelineFuseQKV", {}),
        (TOME, {**CUSTOM, "method": "kv_downsample"}),
    ],
    "merge": [(TOME, {**CUSTOM, "method": "merge"})],
}
pytestmark = [
    pytest.mark.usefixtures("fresh_compiler"),
    pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor"),
]


@pytest.fixture(scope="module")
def call(studio):
    """What a real sampler calls the smallest network with."""

    def sampled(model):
        positive, negative = (in_process.random_conditioning(model, seed=seed) for seed in (1, 2))
        in_process.sample(model, positive, negative, torch.zeros(1, 4, 16, 16), steps=1)

    return fake_cuda.record_call(checkpoints.smallest_unet(), sampled)


@pytest.mark.parametrize("title", often([next(iter(STACKS))], STACKS))
def test_a_compiled_stack_is_one_graph_and_does_not_wait_for_the_gpu(studio, call, title):
    model = checkpoints.smallest_unet()
    for node, inputs in STACKS[title]:
        model = studio.run(node, model=model, **inputs)
    model = attach(ModelTarget(model), CompileUNet(model, HOW, Compiler()))
    mode = fake_cuda.fake_cuda()
    fake_cuda.move_model(model, mode)
    for _ in range(2):
        found = fake_cuda.answer(model, call, mode)
        assert (found.device.type, found.shape) == ("cuda", call.args[0].shape)
    assert (state(model).graphs, state(model).graph_breaks, state(model).compiled_calls) == (1, 0, 2)
    for technique in model.get_attachment("paceline").techniques:
        assert is_active(technique), technique.last_summary()


@pytest.mark.thorough
def test_a_compiled_controlnet_does_not_wait_for_the_gpu(studio, call):
    control = checkpoints.smallest_controlnet()
    control = attach(ControlNetTarget(control), compile_controlnet(control, HOW, Compiler())[1])
    mode, model = fake_cuda.fake_cuda(), checkpoints.smallest_unet()
    fake_cuda.move_network(control.control_model, mode)
    fake_cuda.move_network(model.model, mode)
    control.model_sampling_current = model.model.model_sampling
    (technique,) = stack_on(control).techniques
    latent, sigma = fake_cuda.to_cuda((torch.zeros(2, 4, 16, 16), torch.ones(2)), mode)
    with torch.inference_mode(), mode:
        control.cond_hint = torch.zeros(1, 3, 128, 128, device="cuda")  # as kept from the step before
        text = {"c_crossattn": torch.zeros(2, 77, 48, device="cuda")}
        for _ in range(2):
            found = control.get_control(latent, sigma, text, 2, {})
    outputs = [tensor for tensors in found.values() for tensor in tensors]
    assert outputs and {tensor.device.type for tensor in outputs} == {"cuda"}
    (compiled,) = technique.policy.used
    counts = compiled.functions[0].state
    # ComfyUI's blocks leave something in the default of an argument in their first call of a process.
    assert counts.graphs <= 2 and (counts.graph_breaks, counts.compiled_calls) == (0, 2)


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_a_compiled_vae_does_not_wait_for_the_gpu(studio, dtype):
    vae = studio.run("PacelineVAEPrecision", vae=vaes.kl(), dtype=dtype, channels_last=True)
    vae = attach(VAETarget(vae), compile_vae(vae, HOW, Compiler(), encoder=False, decoder=True)[1])
    with on_fake_cuda(vae) as network:
        decoded(network, {"bf16": torch.bfloat16, "fp32": torch.float32}[dtype])
    compiled = [found for technique in stack_on(vae).techniques for found in getattr(technique.policy, "used", ())]
    assert [function.state.compiled_calls for one in compiled for function in one.functions] == [1]
