"""Compiled networks under a GPU's rules on a CPU: one graph each, nothing waits, nothing is on the wrong device.

``aot_eager`` traces as inductor does, and generates no code. See ``fake_cuda``.
"""

from __future__ import annotations

import pytest
import torch
from cases import often
from comfy_host import checkpoints, fake_cuda, in_process
from compiled_models import state
from paceline.core.technique import attach
from paceline.optimizers.compilation.compiler import Compiler
from paceline.optimizers.compilation.settings import NetworkSettings
from paceline.optimizers.hosts.comfyui.compilation.unet import CompileUNet
from paceline.optimizers.hosts.comfyui.targets.model import ModelTarget

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
