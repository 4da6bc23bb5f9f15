"""Compile UNet gives what the model gives without it, whatever is added, changed or removed after compiling.

The backend is ``eager`` where nothing else is said: it traces, guards and recompiles as any other, and only leaves
out the code generation, so results are equal bit for bit.
"""

from __future__ import annotations

import sys
import time
from itertools import permutations
from types import SimpleNamespace

import model_changes as changes
import pytest
import torch
import torch._dynamo
from comfy_host import checkpoints, in_process


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def compiled(studio):
    """Apply Compile UNet; each test gets a compilation of its own through the limit, which changes nothing else."""

    def apply(model, **settings):
        settings = {"backend": "eager", "recompile_limit": limit, **settings}
        return studio.run("PacelineCompileUNet", model=model, **settings)

    global limit
    limit += 1
    return apply


limit = 100


def state(model):
    technique = model.get_attachment("paceline").find("compile_unet")
    return next(iter(technique._used)).functions[0].state


def test_it_gives_the_same_image_and_says_what_it_did(studio, compiled, baseline):
    model = compiled(studio.model)
    assert "not sampled yet" in studio.report(model)
    assert torch.equal(studio.sample(model), baseline)
    report = studio.report(model)
    assert "Compile UNet" in report
    assert "compiled whole model: 1 graph, 0 recompiles" in report
    assert "2 calls compiled, 0 eager" in report
    assert "graph breaks" not in report


@pytest.mark.parametrize("name", changes.MODEL_CHANGES)
def test_a_change_of_the_model_takes_effect_and_leaves_again(studio, compiled, core_node, baseline, name):
    change = changes.MODEL_CHANGES[name]
    expected = studio.sample(change(studio, core_node, studio.model), steps=4)
    untouched = studio.sample(studio.model, steps=4)
    model = compiled(studio.model)
    assert torch.equal(studio.sample(model, steps=4), untouched)
    after = studio.sample(change(studio, core_node, model), steps=4)
    before = studio.sample(compiled(change(studio, core_node, studio.model)), steps=4)
    assert torch.equal(after, expected)
    assert torch.equal(before, expected)
    assert not torch.equal(expected, untouched)
    assert torch.equal(studio.sample(model, steps=4), untouched)
    assert state(model).eager_count == 0


@pytest.mark.parametrize("name", changes.SAMPLING_CHANGES)
def test_a_change_of_the_sampling_takes_effect_and_leaves_again(studio, compiled, baseline, name):
    change = changes.SAMPLING_CHANGES[name]
    expected = studio.sample(studio.model, **change(studio))
    model = compiled(studio.model)
    assert torch.equal(studio.sample(model), baseline)
    assert torch.equal(studio.sample(model, **change(studio)), expected)
    assert torch.equal(studio.sample(model), baseline)
    assert state(model).eager_count == 0


def test_the_order_of_nodes_does_not_matter(studio, compiled, core_node):
    steps = {
        "tome": changes.tome,
        "lora": changes.lora,
        "compile": lambda studio, core_node, model: compiled(model),
        "freeu": changes.freeu,
    }
    images = []
    for order in permutations(steps):
        model = studio.model
        for name in order:
            model = steps[name](studio, core_node, model)
        images.append(studio.sample(model))
    assert all(torch.equal(image, images[0]) for image in images)


def test_prompts_cost_nothing_and_sizes_at_most_one_graph(studio, compiled):
    model = compiled(studio.model)
    studio.sample(model, size=(24, 24))
    for tokens in (154, 231, 77):
        studio.sample(model, size=(24, 24), positive=in_process.random_conditioning(studio.model, tokens, seed=tokens))
    assert (state(model).graphs, state(model).recompiles) == (1, 0)
    for size in ((32, 32), (32, 24), (24, 32), (16, 16), (40, 24)):  # the first of them: one graph for any size
        studio.sample(model, size=size)
    assert state(model).recompiles == 1
    studio.sample(model, size=(24, 24), cfg=1.0)
    assert state(model).recompiles == 2
    studio.sample(model, size=(24, 24), batch=3)
    studio.sample(model, size=(24, 24), batch=2)
    recompiles = state(model).recompiles
    assert recompiles <= 3
    studio.sample(model, size=(24, 24))
    assert state(model).recompiles == recompiles
    assert state(model).eager_count == 0
    assert f"{recompiles} recompiles" in studio.report(model)


def test_turning_something_on_and_off_again_compiles_once(studio, compiled, core_node):
    model = compiled(studio.model)
    with_tome = studio.tome(model)
    for _ in range(3):
        studio.sample(model)
        studio.sample(with_tome)
        studio.sample(changes.lora(studio, core_node, model))
    assert state(model).graphs == 2


@pytest.mark.parametrize("name", ["tome_refresh", "tome_everywhere", "tome_window"])
def test_what_is_kept_between_steps_costs_two_graphs_and_no_more(studio, compiled, core_node, name):
    model = compiled(changes.MODEL_CHANGES[name](studio, core_node, studio.model))
    studio.sample(model, steps=8)
    studio.sample(model, steps=9)
    assert state(model).graphs <= 2
    assert "0 fallbacks" in studio.report(model)


def test_counts_of_other_techniques_stay_true(studio, compiled):
    model = studio.attention(studio.tome(compiled(studio.model)), "sdpa")
    eager = studio.attention(studio.tome(studio.model), "sdpa")
    studio.sample(model, steps=4)
    studio.sample(eager, steps=4)

    def lines(report):
        return [line for line in report.splitlines() if "last run" in line and "compiled" not in line]

    assert lines(studio.report(model)) == lines(studio.report(eager))


def test_repeated_blocks_share_code_and_step_aside_for_patches(studio, compiled, baseline):
    model = compiled(studio.model, scope="repeated_blocks")
    assert torch.equal(studio.sample(model), baseline)
    assert "7 x BasicTransformerBlock" in studio.report(model)
    assert state(model).graphs <= 3  # one for each width; seven blocks
    assert torch.equal(studio.sample(studio.tome(model)), studio.sample(studio.tome(studio.model)))
    assert "patches need to know at which block they are" in studio.report(studio.tome(model))


def test_channels_last_is_rounding_and_leaves_with_the_node(studio, compiled, baseline):
    model = compiled(studio.model, channels_last=True)
    assert (studio.sample(model) - baseline).norm() < 1e-3 * baseline.norm()
    assert torch.equal(studio.sample(studio.model), baseline)


def test_removing_gives_the_baseline(studio, compiled, baseline):
    model = compiled(studio.model)
    studio.sample(model)
    removed = studio.run("PacelineRemoveOptimizations", model=model)
    assert torch.equal(studio.sample(removed), baseline)
    assert "_forward" not in studio.model.model.diffusion_model.__dict__
    assert "No Paceline optimizations" in studio.report(removed)


def test_a_second_node_replaces_the_first(studio, compiled):
    model = compiled(compiled(studio.model), dynamic="true")
    kinds = [technique.kind for technique in model.get_attachment("paceline").techniques]
    assert kinds == ["compile_unet"]
    assert "dynamic true" in studio.report(model)


def test_the_node_run_again_finds_what_was_compiled(studio, compiled):
    studio.sample(compiled(studio.model))
    again = compiled(studio.model)
    studio.sample(again)
    assert state(again).graphs == 1


def test_cores_compile_node_before_ours_is_taken_off_and_after_ours_goes_first(studio, compiled, baseline):
    from comfy_api.torch_helpers import set_torch_compile_wrapper

    def core(model):
        clone = model.clone()
        set_torch_compile_wrapper(model=clone, backend="eager")
        return clone

    before = compiled(core(studio.model))
    assert torch.equal(studio.sample(before), baseline)
    assert "took ComfyUI's TorchCompileModel (or another pack's) off" in studio.report(before)
    assert "2 calls compiled, 0 eager" in studio.report(before)
    after = core(compiled(studio.model))
    assert torch.equal(studio.sample(after), baseline)
    assert "compiles this model too and comes after this one" in studio.report(after)


def test_a_model_that_is_not_loaded_completely_is_left_alone(studio, compiled, baseline):
    """A CPU has no smaller memory beside it: the flag that ComfyUI's loader sets then stands for it."""
    from comfy.patcher_extension import CallbacksMP

    model = compiled(studio.model)
    model.add_callback(CallbacksMP.ON_PRE_RUN, lambda patcher: setattr(patcher.model, "model_lowvram", True))
    try:
        assert torch.equal(studio.sample(model), baseline)
    finally:
        model.model.model_lowvram = False
    assert "the model is not loaded completely" in studio.report(model)


@torch._dynamo.register_backend(name="paceline_no_compiler")
def no_compiler(graph, inputs):
    raise RuntimeError("No working C++ compiler found")


def test_a_failing_compiler_costs_the_speed_and_not_the_image(studio, compiled, baseline):
    model = compiled(studio.model, backend="paceline_no_compiler")
    assert torch.equal(studio.sample(model), baseline)
    report = studio.report(model)
    assert "all 2 calls ran as without the node" in report
    assert "compilation was given up: there is no C++ compiler" in report
    with pytest.raises(Exception, match="there is no C\\+\\+ compiler.*Install"):
        studio.sample(compiled(studio.model, backend="paceline_no_compiler", on_error="raise"))


@torch._dynamo.register_backend(name="paceline_cancelled")
def cancelled(graph, inputs):
    import comfy.model_management

    comfy.model_management.interrupt_current_processing()  # as the Cancel button does
    end = time.perf_counter() + 60
    while time.perf_counter() < end:
        time.sleep(0.01)
    return graph


def test_cancel_stops_a_compilation(studio, compiled):
    import comfy.model_management

    with pytest.raises(comfy.model_management.InterruptProcessingException):
        studio.sample(compiled(studio.model, backend="paceline_cancelled"))
    assert not comfy.model_management.processing_interrupted()
    model = compiled(studio.model)
    studio.sample(model)
    assert state(model).compiled_calls == 2


@torch._dynamo.register_backend(name="paceline_slow")
def slow(graph, inputs):
    time.sleep(1.6)
    return graph


def test_progress_goes_to_the_node(studio, compiled, monkeypatch):
    sent = []

    class Server:
        client_id = "browser"

        def send_sync(self, event, payload, client):
            sent.append((event, payload))

    monkeypatch.setitem(sys.modules, "server", SimpleNamespace(PromptServer=SimpleNamespace(instance=Server())))
    model = compiled(studio.model, backend="paceline_slow")
    model.get_attachment("paceline").find("compile_unet").node_id = "7"
    studio.sample(model)
    events = [payload for event, payload in sent if event == "paceline.compile"]
    assert events[0]["node"] == "7"
    assert events[0]["graph"] == 1
    assert any(event["text"].startswith("compiling 00:0") for event in events)


def test_a_model_with_dynamic_vram_and_no_way_back_is_refused(studio, compiled, monkeypatch):
    clone = studio.model.clone()
    monkeypatch.setattr(type(clone), "is_dynamic", lambda self: True)

    def refuse(disable_dynamic=False, **options):
        raise RuntimeError("no cached_patcher_init")

    monkeypatch.setattr(clone, "clone", refuse, raising=False)
    with pytest.raises(Exception, match="uses ComfyUI's dynamic VRAM.*--disable-dynamic-vram"):
        compiled(clone)


def test_a_second_copy_for_dynamic_vram_is_loaded_once_and_said(studio, compiled, baseline):
    """There is no dynamic VRAM on a CPU: a patcher that says it is dynamic stands for it."""
    loaded = []
    dynamic = studio.model.clone()
    dynamic.is_dynamic = lambda: True

    def clone(disable_dynamic=False, model_override=None):
        if model_override is None:
            loaded.append(checkpoints.tiny_sd15(width=32, context=48))
        return loaded[-1].clone(model_override=model_override)

    dynamic.clone = clone
    first, second = compiled(dynamic), compiled(dynamic)
    assert len(loaded) == 1
    assert first.model is second.model is not dynamic.model
    assert torch.equal(studio.sample(first), baseline)
    assert "a second copy of its weights, without dynamic VRAM" in studio.report(first)


def test_a_clone_for_another_gpu_has_its_own_network_and_stays_compiled(studio, compiled, baseline):
    """As ComfyUI's MultiGPU nodes make it."""
    base = studio.model.clone()
    base.cached_patcher_init = (lambda: checkpoints.tiny_sd15(width=32, context=48), ())
    model = compiled(base)
    other = model.deepclone_multigpu(torch.device("cpu"))
    assert other.model is not model.model
    for patcher in (model, other):
        assert torch.equal(studio.sample(patcher), baseline)
        assert "2 calls compiled, 0 eager" in studio.report(patcher)
    technique = other.get_attachment("paceline").find("compile_unet")
    assert sorted(used.functions[0].state.compiled_calls for used in technique._used) == [2, 2]


@pytest.mark.parametrize("name", ["flux", "wan", "z_image"])
def test_diffusion_transformers_are_compiled_too(compiled, name):
    from comfy_host.transformers import build, conditioning, latent

    model = build(name)

    def sample(patcher, size=(16, 24), text=20):
        prompts = conditioning(name, text, seed=1), conditioning(name, text, seed=2)
        return in_process.sample(patcher, *prompts, latent(name, *size, 1), steps=2, seed=7, scheduler="simple")

    made = compiled(model)
    assert torch.equal(sample(made), sample(model))
    assert torch.equal(sample(made, text=33), sample(model, text=33))
    assert torch.equal(sample(made, size=(24, 16)), sample(model, size=(24, 16)))
    assert state(made).eager_count == 0


def test_the_models_memory_is_given_back(compiled, studio):
    """torch keeps what it has compiled; that must not keep the network."""
    import gc
    import weakref

    model = checkpoints.tiny_sd15(width=32, context=48)
    alive = weakref.ref(model.model.diffusion_model)
    made = compiled(model)
    studio.sample(made)
    del model, made
    import comfy.model_management

    comfy.model_management.unload_all_models()
    gc.collect()
    assert alive() is None
