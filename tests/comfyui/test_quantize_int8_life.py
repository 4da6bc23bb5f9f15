"""The life of int8 models in ComfyUI: clones, LoRA, partial loading, memory, and beside other nodes."""

from __future__ import annotations

import pytest
import torch
from comfy_host import checkpoints
from distances import relative
from int8_models import int8_layers, one_call, with_lora

# -- the life of the clones --------------------------------------------------------------------------------------------


def test_the_original_is_let_go_when_only_the_int8_model_is_held(studio, quantize):
    import gc
    import weakref

    import comfy.model_management

    model = checkpoints.tiny_sd15(width=32, context=48, seed=4)
    model.cached_patcher_init = (lambda seed: checkpoints.tiny_sd15(width=32, context=48, seed=seed), (4,))
    converted = quantize(model)
    expected = studio.sample(model)
    network = weakref.ref(model.model)
    comfy.model_management.unload_all_models()
    del model
    gc.collect()
    assert network() is None
    # Going back loads the file again, as a loader would.
    removed = studio.run("PacelineRemoveOptimizations", model=converted)
    assert torch.equal(studio.sample(removed), expected)


# -- LoRA --------------------------------------------------------------------------------------------------------------


def test_a_copy_that_compile_unet_had_taken_off_dynamic_vram_is_loaded_without_it_again(studio, quantize):
    """Its loader leaves a file's tensors in the file's dtype, which only dynamic VRAM casts."""
    import gc

    import comfy.model_management
    import comfy.model_patcher

    class Dynamic(comfy.model_patcher.ModelPatcher):
        def is_dynamic(self):
            return True

    loaded = []

    def load(disable_dynamic=False):
        plain = checkpoints.tiny_sd15(width=32, context=48, seed=4)
        kind = comfy.model_patcher.ModelPatcher if disable_dynamic else Dynamic
        model = kind(plain.model, plain.load_device, plain.offload_device)
        model.cached_patcher_init = (load, ())
        loaded.append(disable_dynamic)
        return model

    model = load()
    converted = quantize(studio.run("PacelineCompileUNet", model=model, backend="eager"))
    comfy.model_management.unload_all_models()
    gc.collect()  # as without ComfyUI's cache, only the last MODEL is held
    studio.run("PacelineModelPrecision", model=converted, dtype="bf16")
    asked_for_dynamic, *rest = loaded[2:]  # after the file and the copy of Compile UNet
    assert not asked_for_dynamic and rest and all(rest)


def test_lora_before_and_after_is_as_near_as_without(studio, baseline, quantize):
    strength = 0.5
    converted = quantize(studio.model)
    floor = relative(studio.sample(converted), baseline)
    expected = studio.sample(with_lora(studio.model, strength))
    assert relative(expected, baseline) > 3 * floor  # it does something that int8 could lose
    before, after = quantize(with_lora(studio.model, strength)), with_lora(converted, strength)
    first, second = studio.sample(before), studio.sample(after)
    assert torch.equal(first, second)
    assert relative(first, expected) < 1.5 * floor
    assert "fallback" not in studio.report(before)
    assert torch.equal(studio.sample(converted), studio.sample(quantize(studio.model)))  # and it is gone afterwards


def _one_reported_call(model, studio):
    """Count one call by the technique itself: a sampler would load the whole model first."""
    from paceline.core.activity import Activity
    from paceline.optimizers.hosts.comfyui.runtime.stack import stack_of
    from paceline.optimizers.hosts.comfyui.runtime.technique import ModelCall

    technique = stack_of(model).techniques[0]
    activity = Activity(model_calls=1)
    technique.install(ModelCall(model.model, torch.ones(1), {}), activity)
    one_call(model)
    summary = technique.policy.summarize(activity)
    assert summary.state == "partly"
    return "\n".join((summary.text, *summary.details))


def test_a_model_that_did_not_fit_computes_its_lora_in_full_precision(studio, quantize):
    """Partial loading: what did not fit has its LoRA added at each use; the rest is requantised."""
    converted = with_lora(quantize(studio.model), 1.0)
    studio.sample(converted, steps=1)
    whole = one_call(converted)
    fits = converted.model_size() // 2
    converted.detach()
    with torch.inference_mode():
        converted.patch_model(device_to=converted.load_device, lowvram_model_memory=fits)
    waiting = [layer for layer in int8_layers(converted).values() if layer.weight_function]
    assert 0 < len(waiting) < 70
    assert relative(one_call(converted), whole) < 0.02
    report = _one_reported_call(converted, studio)
    assert f"{len(waiting)} x fallback: a LoRA on a layer that is not loaded" in report
    converted.detach()
    studio.sample(converted, steps=1)
    assert torch.equal(one_call(converted), whole)


# -- memory ------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_quantising_needs_little_memory_beside_the_model():
    """Two float32 copies of one layer, beside the new weights: in a process of its own, so that nothing else counts."""
    import json
    import subprocess
    import sys

    from comfy_host.paths import ROOT

    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "comfyui" / "quantizing_memory.py")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["most"] < 1.5 * found["model"], found
    assert found["linear_after"] < 0.52 * found["linear_before"], found


# -- beside other nodes ----------------------------------------------------------------------------------------------


def test_fused_projections_of_int8_layers_are_exact(studio, quantize):
    """Rows keep their scales when weights are joined, and tokens are rounded once instead of three times."""
    model = quantize(studio.model)
    fused = studio.run("PacelineFuseQKV", model=model)
    assert torch.equal(studio.sample(fused), studio.sample(model))
    report = studio.report(fused)
    assert "q k v: 14, k v: 14\n" in report
    alone, together = (one.get_attachment("paceline").find("int8").last_summary().counts for one in (model, fused))
    assert together == alone


@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_in_one_graph_with_the_same_bits_by_a_node_before_or_after(small, quantize):
    from comfy_api.torch_helpers import set_torch_compile_wrapper
    from torch._dynamo.utils import counters

    expected = small.sample(quantize(small.model))
    for first in (False, True):
        torch._dynamo.reset()
        counters.clear()
        model = (small.model if first else quantize(small.model)).clone()
        set_torch_compile_wrapper(model=model, backend="eager", fullgraph=True)
        assert torch.equal(small.sample(quantize(model) if first else model), expected)
        assert counters["stats"]["unique_graphs"] == 1
