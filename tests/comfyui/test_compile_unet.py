"""Compile UNet gives what the model gives without it, whatever is added, changed or removed after compiling.

The backend is ``eager`` where nothing else is said: it traces, guards and recompiles as any other, and only leaves
out the code generation, so results are equal bit for bit.
"""

from __future__ import annotations

import copy
import sys
import time
from functools import partial
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


def with_model_of_its_own(studio, model):
    """The studio with a model on which no other test has compiled anything, and prompts for it."""
    made = copy.copy(studio)
    made.model = model
    made.positive, made.negative = (in_process.random_conditioning(model, seed=seed) for seed in (1, 2))
    return made


@pytest.fixture
def studio(studio):
    return with_model_of_its_own(studio, checkpoints.tiny_sd15(width=32, context=48))


@pytest.fixture
def small(studio):
    return with_model_of_its_own(studio, checkpoints.smallest_unet())


@pytest.fixture
def small_baseline(small):
    return small.sample(small.model)


@pytest.fixture
def compiled(studio):
    def apply(model, **settings):
        return studio.run("PacelineCompileUNet", model=model, **{"backend": "eager", **settings})

    return apply


def state(model):
    technique = model.get_attachment("paceline").find("compilation")
    return next(iter(technique.used)).functions[0].state


def test_it_gives_the_same_image_and_says_what_it_did(small, compiled, small_baseline):
    model = compiled(small.model)
    assert "not sampled yet" in small.report(model)
    assert torch.equal(small.sample(model), small_baseline)
    report = small.report(model)
    assert "Compile UNet" in report
    assert "compiled whole model: 1 graph, 0 recompiles" in report
    assert "compiled calls: 2, fallbacks: 0" in report
    assert "graph breaks: 0" in report


@pytest.mark.parametrize("name", changes.MODEL_CHANGES)
def test_a_change_of_the_model_takes_effect_and_leaves_again(studio, compiled, core_node, name):
    change = changes.MODEL_CHANGES[name]
    levels = 2 if name in changes.NEED_LEVELS else 1
    studio = with_model_of_its_own(studio, checkpoints.smallest_unet(levels=levels))
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
def test_a_change_of_the_sampling_takes_effect_and_leaves_again(small, compiled, small_baseline, name):
    change = changes.SAMPLING_CHANGES[name]
    expected = small.sample(small.model, **change(small))
    model = compiled(small.model)
    assert torch.equal(small.sample(model), small_baseline)
    assert torch.equal(small.sample(model, **change(small)), expected)
    assert torch.equal(small.sample(model), small_baseline)
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


def test_prompts_cost_nothing_and_sizes_at_most_one_graph(small, compiled):
    model = compiled(small.model)
    small.sample(model, size=(24, 24))
    for tokens in (154, 231, 77):
        small.sample(model, size=(24, 24), positive=in_process.random_conditioning(small.model, tokens, seed=tokens))
    assert (state(model).graphs, state(model).recompiles) == (1, 0)
    for size in ((32, 32), (32, 24), (24, 32), (16, 16), (40, 24)):  # the first of them: one graph for any size
        small.sample(model, size=size)
    assert state(model).recompiles == 1
    small.sample(model, size=(24, 24), cfg=1.0)
    assert state(model).recompiles == 2
    small.sample(model, size=(24, 24), batch=3)
    small.sample(model, size=(24, 24), batch=2)
    recompiles = state(model).recompiles
    assert recompiles <= 3
    small.sample(model, size=(24, 24))
    assert state(model).recompiles == recompiles
    assert state(model).eager_count == 0
    assert f"{recompiles} recompiles" in small.report(model)


def test_turning_something_on_and_off_again_compiles_once(small, compiled, core_node):
    model = compiled(small.model)
    with_tome = small.tome(model)
    for _ in range(3):
        small.sample(model)
        small.sample(with_tome)
        small.sample(changes.lora(small, core_node, model))
    assert state(model).graphs == 2


@pytest.mark.parametrize("name", ["tome_refresh", "tome_everywhere", "tome_window"])
def test_what_is_kept_between_steps_costs_two_graphs_and_no_more(small, compiled, core_node, name):
    model = compiled(changes.MODEL_CHANGES[name](small, core_node, small.model))
    small.sample(model, steps=8)
    small.sample(model, steps=9)
    assert state(model).graphs <= 2
    assert "fallbacks: 0" in small.report(model)


def test_counts_of_other_techniques_stay_true(studio, compiled):
    model = studio.attention(studio.tome(compiled(studio.model)), "sdpa")
    eager = studio.attention(studio.tome(studio.model), "sdpa")
    studio.sample(model, steps=4)
    studio.sample(eager, steps=4)

    def lines(report):
        return [line for line in report.splitlines() if "last run" in line and "compiled" not in line]

    assert lines(studio.report(model)) == lines(studio.report(eager))


def test_repeated_blocks_share_code_and_step_aside_for_patches(studio, compiled):
    model = compiled(studio.model, scope="repeated_blocks")
    assert torch.equal(studio.sample(model), studio.sample(studio.model))
    assert "7 x BasicTransformerBlock" in studio.report(model)
    assert state(model).graphs <= 3  # one for each width; seven blocks
    assert torch.equal(studio.sample(studio.tome(model)), studio.sample(studio.tome(studio.model)))
    assert "patches need to know at which block they are" in studio.report(studio.tome(model))


def test_channels_last_is_rounding_and_leaves_with_the_node(small, compiled, small_baseline):
    model = compiled(small.model, channels_last=True)
    assert (small.sample(model) - small_baseline).norm() < 1e-3 * small_baseline.norm()
    assert torch.equal(small.sample(small.model), small_baseline)


def test_removing_gives_the_baseline(small, compiled, small_baseline):
    model = compiled(small.model)
    small.sample(model)
    removed = small.run("PacelineRemoveOptimizations", model=model)
    assert torch.equal(small.sample(removed), small_baseline)
    assert "_forward" not in small.model.model.diffusion_model.__dict__
    assert "No Paceline optimizations" in small.report(removed)


def test_a_second_node_replaces_the_first(small, compiled):
    model = compiled(compiled(small.model), dynamic="true")
    kinds = [technique.kind for technique in model.get_attachment("paceline").techniques]
    assert kinds == ["compilation"]
    assert "dynamic true" in small.report(model)


def test_the_node_run_again_finds_what_was_compiled(small, compiled):
    small.sample(compiled(small.model))
    again = compiled(small.model)
    small.sample(again)
    assert state(again).graphs == 1


def test_cores_compile_node_before_ours_is_taken_off_and_after_ours_goes_first(small, compiled, small_baseline):
    from comfy_api.torch_helpers import set_torch_compile_wrapper

    def core(model):
        clone = model.clone()
        set_torch_compile_wrapper(model=clone, backend="eager")
        return clone

    before = compiled(core(small.model))
    assert torch.equal(small.sample(before), small_baseline)
    assert "took ComfyUI's TorchCompileModel (or another pack's) off" in small.report(before)
    assert "compiled calls: 2, fallbacks: 0" in small.report(before)
    after = core(compiled(small.model))
    assert torch.equal(small.sample(after), small_baseline)
    assert "compiles this model too and comes after this one" in small.report(after)


def test_a_model_that_is_not_loaded_completely_is_left_alone(small, compiled, small_baseline):
    """A CPU has no smaller memory beside it: the flag that ComfyUI's loader sets then stands for it."""
    from comfy.patcher_extension import CallbacksMP

    model = compiled(small.model)
    model.add_callback(CallbacksMP.ON_PRE_RUN, lambda patcher: setattr(patcher.model, "model_lowvram", True))
    try:
        assert torch.equal(small.sample(model), small_baseline)
    finally:
        model.model.model_lowvram = False
    assert "the network is not loaded completely" in small.report(model)


@torch._dynamo.register_backend(name="paceline_no_compiler")
def no_compiler(graph, inputs):
    raise RuntimeError("No working C++ compiler found")


def test_a_patched_forward_is_left_alone_and_what_remains_of_the_patch_is_none(small, compiled, small_baseline):
    """When ComfyUI takes a patch off, the module's own method stays behind as an attribute."""
    block = small.model.model.diffusion_model.input_blocks[1][1].transformer_blocks[0]
    patched = small.model.clone()
    path = "diffusion_model.input_blocks.1.1.transformer_blocks.0.forward"
    patched.add_object_patch(path, partial(type(block).forward, block))
    model = compiled(patched, scope="repeated_blocks")
    assert torch.equal(small.sample(model), small_baseline)
    assert "another node has replaced this method of the network itself" in small.report(model)
    model = compiled(small.model, scope="repeated_blocks")
    assert torch.equal(small.sample(model), small_baseline)
    assert "fallbacks: 0" in small.report(model)
    assert vars(block).pop("forward").__func__ is type(block).forward


def test_a_failing_compiler_costs_the_speed_and_not_the_image(small, compiled, small_baseline):
    model = compiled(small.model, backend="paceline_no_compiler")
    assert torch.equal(small.sample(model), small_baseline)
    report = small.report(model)
    assert "all 2 calls ran uncompiled" in report
    assert "compilation was given up: there is no C++ compiler" in report
    with pytest.raises(Exception, match="there is no C\\+\\+ compiler.*Install"):
        small.sample(compiled(small.model, backend="paceline_no_compiler", on_error="raise"))


@torch._dynamo.register_backend(name="paceline_cancelled")
def cancelled(graph, inputs):
    import comfy.model_management

    comfy.model_management.interrupt_current_processing()  # as the Cancel button does
    end = time.perf_counter() + 60
    while time.perf_counter() < end:
        time.sleep(0.01)
    return graph


def test_cancel_stops_a_compilation(small, compiled):
    import comfy.model_management

    with pytest.raises(comfy.model_management.InterruptProcessingException):
        small.sample(compiled(small.model, backend="paceline_cancelled"))
    assert not comfy.model_management.processing_interrupted()
    model = compiled(small.model)
    small.sample(model)
    assert state(model).compiled_calls == 2


@torch._dynamo.register_backend(name="paceline_slow")
def slow(graph, inputs):
    time.sleep(1.6)
    return graph


def test_progress_goes_to_the_node(small, compiled, monkeypatch):
    sent = []

    class Server:
        client_id = "browser"

        def send_sync(self, event, payload, client):
            sent.append((event, payload))

    monkeypatch.setitem(sys.modules, "server", SimpleNamespace(PromptServer=SimpleNamespace(instance=Server())))
    model = compiled(small.model, backend="paceline_slow")
    model.get_attachment("paceline").find("compilation").node_id = "7"
    small.sample(model)
    events = [payload for event, payload in sent if event == "paceline.compile"]
    assert events[0]["node"] == "7"
    assert events[0]["graph"] == 1
    assert any(event["headline"].startswith("compiling 00:0") for event in events)


def test_a_model_with_dynamic_vram_and_no_way_back_is_refused(small, compiled, monkeypatch):
    clone = small.model.clone()
    monkeypatch.setattr(type(clone), "is_dynamic", lambda self: True)

    def refuse(disable_dynamic=False, **options):
        raise RuntimeError("no cached_patcher_init")

    monkeypatch.setattr(clone, "clone", refuse, raising=False)
    with pytest.raises(Exception, match="uses ComfyUI's dynamic VRAM.*--disable-dynamic-vram"):
        compiled(clone)


def test_a_second_copy_for_dynamic_vram_is_loaded_once_and_said(small, compiled, small_baseline):
    """There is no dynamic VRAM on a CPU: a patcher that says it is dynamic stands for it."""
    loaded = []
    dynamic = small.model.clone()
    dynamic.is_dynamic = lambda: True

    def clone(disable_dynamic=False, model_override=None):
        if model_override is None:
            loaded.append(checkpoints.smallest_unet())
        return loaded[-1].clone(model_override=model_override)

    dynamic.clone = clone
    first, second = compiled(dynamic), compiled(dynamic)
    assert len(loaded) == 1
    assert first.model is second.model is not dynamic.model
    assert torch.equal(small.sample(first), small_baseline)
    assert "a second copy of its weights, without dynamic VRAM" in small.report(first)


def test_a_clone_for_another_gpu_has_its_own_network_and_stays_compiled(small, compiled, small_baseline):
    """As ComfyUI's MultiGPU nodes make it."""
    base = small.model.clone()
    base.cached_patcher_init = (lambda: checkpoints.smallest_unet(), ())
    model = compiled(base)
    other = model.deepclone_multigpu(torch.device("cpu"))
    assert other.model is not model.model
    for patcher in (model, other):
        assert torch.equal(small.sample(patcher), small_baseline)
        assert "compiled calls: 2, fallbacks: 0" in small.report(patcher)
    technique = other.get_attachment("paceline").find("compilation")
    assert sorted(used.functions[0].state.compiled_calls for used in technique.used) == [2, 2]


FEW_BLOCKS = {
    "flux": {"depth": 1, "depth_single_blocks": 1},
    "wan": {"num_layers": 1},
    "z_image": {"n_layers": 1},
}


@pytest.mark.parametrize("name", FEW_BLOCKS)
def test_diffusion_transformers_are_compiled_too(compiled, name):
    from comfy_host.transformers import build, conditioning, latent

    model = build(name, **FEW_BLOCKS[name])

    def sample(patcher, size=(16, 24), text=20):
        prompts = conditioning(name, text, seed=1), conditioning(name, text, seed=2)
        return in_process.sample(patcher, *prompts, latent(name, *size, 1), steps=2, seed=7, scheduler="simple")

    made = compiled(model)
    assert torch.equal(sample(made), sample(model))
    assert torch.equal(sample(made, text=33), sample(model, text=33))
    assert torch.equal(sample(made, size=(24, 16)), sample(model, size=(24, 16)))
    assert state(made).eager_count == 0


def test_the_models_memory_is_given_back(compiled, small):
    """torch keeps what it has compiled; that must not keep the network."""
    import gc
    import weakref

    model = checkpoints.smallest_unet()
    alive = weakref.ref(model.model.diffusion_model)
    made = compiled(model)
    small.sample(made)
    del model, made
    import comfy.model_management

    comfy.model_management.unload_all_models()
    gc.collect()
    assert alive() is None
