"""Compile ControlNet while sampling a real model. The backend ``eager`` traces and guards as any other."""

from importlib import import_module

import pytest
import torch
from comfy_host.checkpoints import smallest_controlnet

SETTINGS = {"backend": "eager", "mode": "default"}


@pytest.fixture
def control_net(small):
    return smallest_controlnet()


pytestmark = pytest.mark.usefixtures("fresh_compiler")


@pytest.fixture
def compiled(small):
    def run(control_net, **settings):
        return small.run("PacelineCompileControlNet", control_net=control_net, **{**SETTINGS, **settings})

    return run


@pytest.fixture
def report(small):
    return lambda control_net: small.report(control_net=control_net)


@pytest.fixture
def sample(small):
    """Sample with ControlNets in a row, each applied by ComfyUI's own node; (control_net, strength, end) or one."""

    def run(*control_nets, size=(24, 16), **options):
        positive, negative = small.positive, small.negative
        hint = torch.rand(1, size[0] * 8, size[1] * 8, 3, generator=torch.Generator().manual_seed(1))
        for given in control_nets:
            control_net, strength, end = given if isinstance(given, tuple) else (given, 1.0, 1.0)
            positive, negative = (
                import_module("nodes")
                .ControlNetApplyAdvanced()
                .apply_controlnet(positive, negative, control_net, hint, strength, 0.0, end)
            )
        return small.sample(small.model, size=size, positive=positive, negative=negative, **options)

    return run


def test_it_runs_compiled_in_every_step_and_gives_the_same(control_net, compiled, report, sample):
    baseline = sample()
    ours = compiled(control_net)
    assert "not used yet" in report(ours)
    expected = sample(control_net, steps=4)
    assert not torch.equal(expected, sample(steps=4))
    assert torch.equal(sample(ours, steps=4), expected)
    assert "compiled forward: 1 graph, 0 recompiles" in report(ours)
    assert "compiled calls: 4\n" in report(ours)
    assert "ControlNet (ControlNet) on cpu" in report(ours)
    assert torch.equal(sample(), baseline)


def test_leaving_the_node_out_leaves_no_trace(control_net, compiled, report, sample, small):
    network = control_net.control_model
    expected = sample(control_net)
    attributes = {name: sorted(vars(module)) for name, module in network.named_modules()}
    ours = compiled(compiled(control_net), channels_last=True)
    assert report(ours).count("Compile ControlNet") == 1, "a second node replaces the first"
    torch.testing.assert_close(sample(ours), expected, rtol=1e-3, atol=1e-3)
    removed = small.nodes["PacelineRemoveOptimizations"].execute(control_net=ours).result[2]
    for plain in (control_net, removed, removed.copy()):
        assert type(plain).__name__ == "ControlNet" and type(plain).__mro__[1].__name__ == "ControlBase"
        assert plain.control_model is plain.control_model_wrapped.model is network
        assert torch.equal(sample(plain), expected)
        assert "No Paceline optimizations are attached to this ControlNet" in report(plain)
    assert {name: sorted(vars(module)) for name, module in network.named_modules()} == attributes


def test_dynamic_vram_is_left_for_a_second_copy(control_net, compiled, report, sample, small):
    """There is no dynamic VRAM on a CPU: what it leaves on a patcher and on modules stands for it."""

    class Handle:
        def __deepcopy__(self, memo):
            raise RuntimeError("memory of the device must not be copied")

    dynamic = smallest_controlnet()
    expected = sample(control_net)
    dynamic.control_model.dynamic_vbars = {"cuda:0": Handle()}
    first = dynamic.control_model.time_embed[0]
    first._v, first._pin_state, first.comfy_cast_weights = Handle(), {"weights": Handle()}, True
    first._v_block, first._v_block_faulted, first._comfy_graph = (Handle(), 0, 1), True, {"graph": Handle()}  # 0.33
    dynamic.control_model_wrapped.is_dynamic = lambda: True
    ours = compiled(dynamic)
    assert ours.control_model is ours.control_model_wrapped.model is not dynamic.control_model
    assert not ours.copy().control_model_wrapped.is_dynamic()
    assert set(vars(ours.control_model.time_embed[0])) == set(vars(smallest_controlnet().control_model.time_embed[0]))
    assert torch.equal(sample(ours), expected)
    assert "a second copy of its weights, without dynamic VRAM" in report(ours)
    removed = small.nodes["PacelineRemoveOptimizations"].execute(control_net=ours.copy()).result[2]
    assert removed.control_model is dynamic.control_model
    assert removed.control_model_wrapped is dynamic.control_model_wrapped


def test_strength_and_schedule_compile_nothing_again(control_net, compiled, report, sample):
    ours = compiled(control_net)
    for strength, end in ((1.0, 1.0), (0.3, 0.5), (0.7, 1.0)):
        expected = sample((control_net, strength, end), steps=4)
        assert torch.equal(sample((ours, strength, end), steps=4), expected)
        assert "compiled forward: 1 graph, 0 recompiles" in report(ours)
        assert "fallback" not in report(ours), "steps that the schedule skips are none"
        assert ("compiled calls: 4\n" in report(ours)) == (end == 1.0)
