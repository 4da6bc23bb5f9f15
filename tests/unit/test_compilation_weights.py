"""One guard on all weights: what compiled code depends on compiles anew, a LoRA does not."""

from __future__ import annotations

import pytest
import torch
from paceline.optimizers.compilation.changing import WeightGuards
from paceline.optimizers.compilation.compiled import CompiledFunction
from paceline.optimizers.compilation.settings import CompileSettings

pytestmark = pytest.mark.usefixtures("fresh_compiler")


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


@pytest.mark.parametrize("change", ["size", "dtype", "stride", "in place"])
def test_weights_of_another_kind_are_compiled_for(network, change):
    function, x = compiled(network), torch.randn(2, 4)
    check(function, network, x)
    key = function.weights.key()
    with torch.inference_mode():  # so were the weights made
        if change == "size":
            replace(network[2], torch.randn(5, 4))
            network[2].bias = torch.nn.Parameter(torch.randn(5), requires_grad=False)
        elif change == "dtype":
            network.double()
            x = x.double()
        elif change == "stride":
            replace(network[0], torch.randn(4, 4).T)
        else:
            network[2].weight.data = torch.randn(6, 4)
            network[2].bias.data = torch.randn(6)
    check(function, network, x)
    assert function.weights.key() != key
    assert function.state.graphs == 2


def test_a_host_that_says_nothing_has_moved_is_believed_and_no_longer(network):
    guards = WeightGuards(network)
    guards.version = "loaded"
    before = guards.key()
    network[2] = torch.nn.Linear(4, 7)
    assert guards.key() == before  # nobody looked
    guards.version = "loaded again"
    assert guards.key() not in (before, None, "")
    after = guards.key()
    network[2] = torch.nn.Linear(4, 9)
    assert guards.key() == after
    guards.version = None  # nobody knows: look each time
    assert guards.key() != after


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
