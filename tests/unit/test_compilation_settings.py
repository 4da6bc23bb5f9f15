"""Settings of a compilation, what torch is told for them, and what is said of a run and of what compiled again."""

from __future__ import annotations

import pytest
import torch
import torch._inductor.config
from paceline.optimizers.compilation import compile_settings
from paceline.optimizers.compilation.compile_settings import CompileSettings, cudagraph_trees_refusal, inductor_options
from paceline.optimizers.compilation.compiled import CompiledFunction
from paceline.optimizers.compilation.reasons import explain, explain_recompile
from paceline.optimizers.core.errors import InvalidSetting


@pytest.mark.parametrize(
    "wrong",
    [{"backend": ""}, {"backend": "eager", "mode": "max-autotune"}, {"backend": "eager", "preset": "diffusion-fast"}],
)
def test_what_is_not_allowed_is_said(reads, wrong):
    reads.refused(InvalidSetting, CompileSettings, **wrong)


def test_the_preset_changes_nothing_globally_and_names_only_options_that_torch_has():
    before = torch._inductor.config.get_config_copy()
    options = inductor_options(CompileSettings(preset="diffusion-fast"))
    assert options == {
        "conv_1x1_as_mm": True,
        "coordinate_descent_tuning": True,
        "coordinate_descent_check_all_directions": True,
        "epilogue_fusion": False,
    }
    assert set(options) <= set(before)
    assert torch._inductor.config.get_config_copy() == before


@pytest.mark.parametrize(
    ("platform", "error"),
    [
        ("linux", "No working C++ compiler found in torch._inductor.config.cpp.cxx"),
        ("win32", "Compiler: cl is not found."),
        ("win32", "Cannot find a working triton installation"),
        ("linux", "CUDA out of memory. Tried to allocate"),
        ("linux", "cudaMallocAsync does not yet support checkPoolLiveAllocations"),
        ("win32", f"No such file or directory: 'C:{'/triton' * 40}.ttir'"),
        ("linux", "something unheard of\nwith a second line"),
    ],
    ids=range(7),
)
def test_a_failure_is_explained_with_the_remedy_for_this_system(reads, monkeypatch, platform, error):
    monkeypatch.setattr("sys.platform", platform)
    try:
        try:
            raise RuntimeError(error)
        except RuntimeError as inner:
            raise ValueError("backend='inductor' raised") from inner
    except ValueError as outer:
        reads(" ".join(explain(outer)))


def test_cuda_graphs_are_refused_with_the_allocator_that_comfyui_chooses(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cudagraph_trees_refusal() == "there is no CUDA device"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "cudaMallocAsync")
    assert "--disable-cuda-malloc" in cudagraph_trees_refusal()
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native")
    assert cudagraph_trees_refusal() is None


def replayed(graph, inputs):
    """A backend whose graph writes each result into the same memory, as a CUDA graph does."""
    memory = torch.zeros(3)

    def run(*args):
        memory.copy_(graph(*args)[0])
        return (memory,)

    return run


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize(
    ("mode", "refusal", "overwritten"),
    [
        ("reduce-overhead", None, False),
        ("default", None, True),  # torch uses no CUDA graphs then, and a copy would be for nothing
        ("reduce-overhead", "there is no GPU", True),
    ],
)
def test_results_of_a_cuda_graph_stay_as_they_were_when_it_runs_again(monkeypatch, mode, refusal, overwritten):
    monkeypatch.setattr(compile_settings, "cudagraph_trees_refusal", lambda: refusal)
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda *given, config_patches: replayed(*given))
    function = CompiledFunction(lambda x: x * 2, CompileSettings(mode=mode))
    first = function(torch.ones(3))
    second = function(torch.full((3,), 5.0))
    assert second.tolist() == [10.0] * 3
    assert first.tolist() == ([10.0] * 3 if overwritten else [2.0] * 3)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (torch.zeros(2, 4, 3), torch.zeros(2, 4, 5)),
        (torch.zeros(2, 4, 3), torch.zeros(3, 4, 3)),
        (torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.float64)),
    ],
    ids=["size", "batch", "dtype"],
)
def test_why_it_compiled_again_is_kept_in_words_and_as_torch_says_it(reads, first, second):
    compiled = CompiledFunction(lambda x: x + 1, CompileSettings(backend="eager", dynamic="false"))
    for x in (first, second, first):
        compiled(x)
    (reason,) = compiled.state.recompile_reasons
    ours, of_torch = reason.split(" (torch: ")
    reads(ours)
    assert of_torch.startswith("tensor 'args[0]' ") and of_torch.endswith(")")
    assert CompiledFunction(lambda x: x, CompileSettings(backend="eager")).state.recompile_reasons == []


GUARDS = (
    "0/0: args[0].size()[2] == 8  # in f\nUser stack trace:\n  ...",
    "0/3: weights == '0123'  # not weights",
    "0/1: len(kwargs['transformer_options']['patches']) == 1",
    "0/2: args[5]['cond_or_uncond'] == '0'",
    "0/4: args[5]['some_node'] == 3",
    "0/1: function.__closure__[0].cell_contents.__self__._modules['layers']._modules['3'].forward == 1",
    "0/1: args[0]._modules['attn1']._modules['to_q']._parameters['weight'].patches[0][0][0][0] == 0.5",
    "12/1: kwargs['y'] is None",
)


def test_reasons_of_guards_that_are_no_tensors(reads):
    reads(*map(explain_recompile, GUARDS))
