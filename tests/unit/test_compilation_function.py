"""A compiled function: what it counts, when it falls back, how it is cancelled, and what it leaves behind."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from paceline.optimizers.compilation.compiled import LIMIT_REACHED, CompiledFunction
from paceline.optimizers.compilation.reasons import CompilationFailed
from paceline.optimizers.compilation.settings import CompileSettings

EAGER = CompileSettings(backend="eager")


pytestmark = pytest.mark.usefixtures("fresh_compiler")


def scaled(x, options):
    return (x * options["factor"]).relu()


def test_counts_graphs_recompiles_and_calls():
    compiled = CompiledFunction(scaled, EAGER)
    assert compiled.variants_left() == EAGER.recompile_limit
    for size in (4, 5, 6):
        x = torch.randn(size, 3)
        assert torch.equal(compiled(x, {"factor": 2.0}), scaled(x, {"factor": 2.0}))
    state = compiled.state
    assert (state.graphs, state.recompiles, state.compiled_calls, state.eager_calls) == (2, 1, 3, {})
    assert state.seconds > 0
    assert compiled.variants_left() == EAGER.recompile_limit - 2


@pytest.mark.parametrize("fullgraph", [False, True])
def test_at_the_limit_what_fits_stays_compiled_and_the_rest_is_counted(fullgraph):
    settings = CompileSettings(backend="eager", recompile_limit=2, dynamic="false", fullgraph=fullgraph)
    compiled = CompiledFunction(scaled, settings)
    for size in (2, 3, 4, 5, 3, 2):
        x = torch.randn(size, 3)
        assert torch.equal(compiled(x, {"factor": 2.0}), scaled(x, {"factor": 2.0}))
    assert compiled.state.graphs == 2
    assert compiled.state.compiled_calls == 4
    assert compiled.state.eager_calls == {LIMIT_REACHED: 2}
    assert not compiled.state.fallback
    assert compiled.variants_left() == 0


def test_a_backend_that_fails_is_tried_once_until_something_changes():
    attempts = []

    def broken(graph, inputs):
        attempts.append(1)
        raise RuntimeError("No working C++ compiler found")

    compiled = CompiledFunction(scaled, EAGER, backend=broken)
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


def test_a_backend_that_fails_stops_the_run_if_asked_to():
    def broken(graph, inputs):
        raise MemoryError("can't allocate memory")

    compiled = CompiledFunction(
        scaled, CompileSettings(backend="eager", strict=True), name="the network", backend=broken
    )
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


def test_a_failure_after_a_part_has_run_starts_over_with_the_arguments_as_they_were():
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

    compiled = CompiledFunction(takes, EAGER, backend=second_fails)
    assert compiled(torch.zeros(2), {"input": [torch.ones(2), torch.ones(2)]}).tolist() == [2, 2]
    assert len(calls) == 2
    assert compiled.state.graph_breaks >= 1  # torch counts one in a function that it inlines twice


def test_nothing_is_left_registered_or_alive():
    from torch._dynamo.callback import callback_handler

    network = torch.nn.Linear(3, 3)
    alive = weakref.ref(network)
    compiled = CompiledFunction(network.forward, EAGER)
    with torch.no_grad():
        compiled(torch.randn(2, 3))
    assert compiled.state.graphs == 1
    assert not callback_handler.start_callbacks
    assert not callback_handler.end_callbacks
    del network, compiled
    gc.collect()
    assert alive() is None  # torch keeps compiled code for good; it must not keep the network
