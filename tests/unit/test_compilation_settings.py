"""Settings of a compilation, what torch is told for them, and whose memory its results are in."""

from __future__ import annotations

import pytest
import torch
import torch._inductor.config
from paceline.core.errors import InvalidSetting
from paceline.optimizers.compilation import settings
from paceline.optimizers.compilation.compiled import CompiledFunction
from paceline.optimizers.compilation.reasons import explain
from paceline.optimizers.compilation.settings import CompileSettings, cudagraph_trees_refusal, inductor_options


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"backend": ""}, "It must be a name"),
        ({"backend": "eager", "mode": "max-autotune"}, "belongs to the backend inductor"),
        ({"backend": "eager", "preset": "diffusion-fast"}, "options of the backend inductor"),
    ],
)
def test_what_is_not_allowed_is_said(wrong, sentence):
    with pytest.raises(InvalidSetting, match=sentence.replace("(", r"\(")):
        CompileSettings(**wrong)


def test_the_preset_changes_nothing_globally_and_names_only_options_that_torch_has(monkeypatch):
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
    monkeypatch.setitem(settings._DIFFUSION_FAST, "an_option_that_torch_has_removed", True)
    assert inductor_options(CompileSettings(preset="diffusion-fast")) == options


@pytest.mark.parametrize(
    ("platform", "error", "words"),
    [
        ("linux", "No working C++ compiler found in torch._inductor.config.cpp.cxx", ["no C++ compiler", "g++"]),
        ("win32", "Compiler: cl is not found.", ["no C++ compiler", "Build Tools"]),
        ("win32", "Cannot find a working triton installation", ["no Triton", "triton-windows"]),
        ("linux", "CUDA out of memory. Tried to allocate", ["memory ran out", "smaller"]),
        ("linux", "cudaMallocAsync does not yet support checkPoolLiveAllocations", ["--disable-cuda-malloc"]),
        ("win32", f"No such file or directory: 'C:{'/triton' * 40}.ttir'", ["260 characters", "LongPathsEnabled"]),
        ("linux", "something unheard of\nwith a second line", ["RuntimeError: something unheard of)", "log"]),
    ],
)
def test_a_failure_is_explained_with_the_remedy_for_this_system(monkeypatch, platform, error, words):
    monkeypatch.setattr("sys.platform", platform)
    try:
        try:
            raise RuntimeError(error)
        except RuntimeError as inner:
            raise ValueError("backend='inductor' raised") from inner
    except ValueError as outer:
        text = " ".join(explain(outer))
    assert all(word in text for word in words)


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
    monkeypatch.setattr(settings, "cudagraph_trees_refusal", lambda: refusal)
    function = CompiledFunction(lambda x: x * 2, CompileSettings(mode=mode), backend=replayed)
    first = function(torch.ones(3))
    second = function(torch.full((3,), 5.0))
    assert second.tolist() == [10.0] * 3
    assert first.tolist() == ([10.0] * 3 if overwritten else [2.0] * 3)
