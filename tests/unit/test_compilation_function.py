"""A compiled function: what it counts, when it falls back, what it leaves behind, and which weights compile anew."""

from __future__ import annotations

import pytest
import torch
from paceline.optimizers.compilation.changing import WeightGuards
from paceline.optimizers.compilation.compile_settings import CompileSettings
from paceline.optimizers.compilation.compiled import LIMIT_REACHED, CompiledFunction
from paceline.optimizers.compilation.compiler import repeated_blocks
from paceline.optimizers.compilation.reasons import CompilationFailed

EAGER = CompileSettings(backend="eager")


pytestmark = pytest.mark.usefixtures("fresh_compiler")


@pytest.mark.parametrize("level", [torch.nn.Module, torch.nn.ModuleList])
def test_containers_that_repeat_are_no_blocks(level):
    """As the levels of VAEs and of Stable Cascade hold them."""
    levels = [level() for _ in range(2)]
    for each in levels:
        each.add_module("0", torch.nn.Linear(2, 2))
        each.add_module("1", torch.nn.ModuleList([torch.nn.Conv2d(2, 2, 1)] * 2))
    found = repeated_blocks(torch.nn.ModuleList(levels))
    assert torch.nn.Conv2d in map(type, found) and level not in map(type, found)


def scaled(x, options):
    return (x * options["factor"]).relu()


@pytest.mark.parametrize("fullgraph", [False, True])
def test_at_the_limit_what_fits_stays_compiled_and_the_rest_is_counted(fullgraph):
    settings = CompileSettings(backend="eager", recompile_limit=2, dynamic="false", fullgraph=fullgraph)
    compiled = CompiledFunction(scaled, settings)
    for size in (2, 3, 4, 5, 3, 2):
        x = torch.randn(size, 3)
        assert torch.equal(compiled(x, {"factor": 2.0}), scaled(x, {"factor": 2.0}))
    assert compiled.state.graphs == 2
    assert compiled.state.eager_calls == {LIMIT_REACHED: 2}
    assert not compiled.state.fallback
    assert compiled.variants_left() == 0


def test_a_backend_that_fails_is_tried_once_until_something_changes(monkeypatch):
    attempts = []

    def broken(graph, inputs):
        attempts.append(1)
        raise RuntimeError("No working C++ compiler found")

    monkeypatch.setattr(torch._dynamo, "lookup_backend", lambda name: broken)
    compiled = CompiledFunction(scaled, EAGER)
    x = torch.randn(2, 2)
    for _ in range(3):
        assert torch.equal(compiled(x, {"factor": 2.0}), scaled(x, {"factor": 2.0}))
    assert len(attempts) == 1
    assert "no C++ compiler" in compiled.state.fallback
    assert sum(compiled.state.eager_calls.values()) == 3
    compiled.retry()
    assert (compiled.state.fallback, compiled.state.remedy) == ("", "")
    compiled(x, {"factor": 2.0})
    assert len(attempts) == 2


def test_a_backend_that_fails_stops_the_run_if_asked_to(monkeypatch):
    def broken(graph, inputs):
        raise MemoryError("can't allocate memory")

    monkeypatch.setattr(torch._dynamo, "lookup_backend", lambda name: broken)
    compiled = CompiledFunction(scaled, CompileSettings(backend="eager", strict=True), name="the network")
    with pytest.raises(CompilationFailed, match="Compiling the network failed: memory ran out.* Make the image"):
        compiled(torch.randn(2, 2), {"factor": 2.0})
    assert not compiled.state.fallback


def test_the_functions_own_errors_are_raised_as_they_are():
    def wrong(x):
        if x.shape[0] == 3:
            raise ValueError("three is not allowed")
        return x + 1

    compiled = CompiledFunction(wrong, EAGER)
    with pytest.raises(ValueError, match="three is not allowed"):
        compiled(torch.randn(3))
    assert torch.equal(compiled(torch.zeros(2)), torch.ones(2))
    assert not compiled.state.fallback
    with pytest.raises(RuntimeError, match="size of tensor"):
        CompiledFunction(lambda a, b: a + b, EAGER)(torch.zeros(2), torch.zeros(3))


def test_a_failure_after_a_part_has_run_starts_over_with_the_arguments_as_they_were(monkeypatch):
    """ControlNet's residuals are taken out of their lists while the network runs."""
    calls = []

    def second_fails(graph, inputs):
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("no")
        return graph

    def takes(x, control):
        x = x + control["input"].pop()
        torch._dynamo.graph_break()
        return x + control["input"].pop()

    monkeypatch.setattr(torch._dynamo, "lookup_backend", lambda name: second_fails)
    compiled = CompiledFunction(takes, EAGER)
    assert compiled(torch.zeros(2), {"input": [torch.ones(2), torch.ones(2)]}).tolist() == [2, 2]
    assert len(calls) == 2
    assert compiled.state.graph_breaks >= 1  # torch counts one in a function that it inlines twice


@pytest.fixture
def network():
    with torch.inference_mode():  # as ComfyUI loads a model
        return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3)).requires_grad_(False)


def compiled(network):
    return CompiledFunction(network.forward, CompileSettings(backend="eager"), weights=WeightGuards(network))


def replace(layer, weight):
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)


@torch.inference_mode()
def check(function, network, x):
    assert torch.equal(function(x), network(x))


def test_weights_that_a_lora_has_changed_are_used_without_compiling(network):
    function, x = compiled(network), torch.randn(2, 4)
    check(function, network, x)
    for layer in (network[0], network[2]):
        replace(layer, torch.randn(layer.weight.shape))
        check(function, network, x)
    with torch.no_grad():
        network[0].weight.mul_(2)
    check(function, network, x)
    assert function.state.graphs == 1


def wider(layer, in_place=False):
    weight, bias = torch.randn(5, 4), torch.randn(5)
    if in_place:
        layer.weight.data, layer.bias.data = weight, bias
    else:
        replace(layer, weight)
        layer.bias = torch.nn.Parameter(bias, requires_grad=False)


CHANGES = {
    "size": lambda network: wider(network[2]),
    "dtype": lambda network: network.double(),
    "stride": lambda network: replace(network[0], torch.randn(4, 4).T),
    "in place": lambda network: wider(network[2], in_place=True),
    "layer": lambda network: network.__setitem__(2, torch.nn.Linear(4, 7).requires_grad_(False)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_weights_of_another_kind_are_compiled_for(network, change):
    function, x = compiled(network), torch.randn(2, 4)
    check(function, network, x)
    key = function.weights.key()
    with torch.inference_mode():  # so were the weights made
        CHANGES[change](network)
    check(function, network, x.to(network[0].weight.dtype))
    assert function.weights.key() != key
    assert function.state.graphs == 2


class FirstHalf(torch.nn.Module):
    """The sum of the first half of a layer's channels, so that code for another width gives another sum."""

    def __init__(self, width):
        super().__init__()
        self.layer = torch.nn.Linear(4, width)

    def forward(self, x):  # [batch, tokens, 4] -> [batch, tokens, 1]
        h = self.layer(x)
        return h[..., : h.shape[-1] // 2].sum(-1, keepdim=True)


class Broken(torch.nn.Sequential):
    def forward(self, x):
        result = torch.zeros_like(x)
        for block in self:
            torch._dynamo.graph_break()  # in a loop: torch compiles the blocks' function, and not the loop
            result = result + block(x)
        return result


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_blocks_of_different_width_after_a_graph_break_have_code_of_their_own(backend):
    with torch.inference_mode():
        network = Broken(*(FirstHalf(width) for width in (4, 8, 4))).requires_grad_(False)
    settings = CompileSettings(backend=backend, strict=True)
    function = CompiledFunction(network.forward, settings, weights=WeightGuards(network))
    x = torch.randn(2, 3, 4)
    check(function, network, x)
    replace(network[0].layer, torch.randn(4, 4))  # a LoRA: other weights of the same size
    check(function, network, x)
    graphs = function.state.graphs
    for width in (4, 8):
        replace(network[0].layer, torch.randn(width, 4))
        network[0].layer.bias = torch.nn.Parameter(torch.randn(width), requires_grad=False)
        check(function, network, x)
    assert function.state.graphs <= graphs + 2
    assert not function.state.eager_calls
