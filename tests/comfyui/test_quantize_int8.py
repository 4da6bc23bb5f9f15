"""Quantize int8 on ComfyUI's own models: near full precision, with LoRA, half the memory, and nothing left behind."""

from __future__ import annotations

import re

import pytest
import torch
from comfy_host import checkpoints, in_process
from comfy_host.transformers import build, conditioning, latent

# Which layers gain is a matter of the machine and none of these small ones does: so they are named.
CHOSEN = r"attn|ff"
TINY = {"include": CHOSEN}


@pytest.fixture
def quantize(studio):
    return lambda model, **settings: studio.run("PacelineQuantizeInt8", model=model, **{**TINY, **settings})


def relative(a, b):
    return ((a - b).norm() / b.norm()).item()


def weights(model):
    return {name: tensor.clone() for name, tensor in model.model.diffusion_model.state_dict().items()}


def unchanged(model, before):
    now = model.model.diffusion_model.state_dict()
    return now.keys() == before.keys() and all(torch.equal(now[name], tensor) for name, tensor in before.items())


def int8_layers(model):
    modules = model.model.diffusion_model.named_modules()
    return {name: m for name, m in modules if getattr(getattr(m, "weight", None), "_layout_cls", "")}


def parameter_bytes(model):
    """Bytes of all weights, int8 ones with their scales, each piece of memory once."""
    sizes = {}
    for parameter in model.model.parameters():
        parts = [parameter]
        if hasattr(parameter, "_qdata"):
            parts = [parameter._qdata, parameter._params.scale]
        for part in parts:
            sizes[part.untyped_storage().data_ptr()] = part.untyped_storage().nbytes()
    return sum(sizes.values())


def with_lora(model, strength, rank=4):
    """A LoRA of one low rank on every layer of attention and feed-forward: (clone, what the same keys are called)."""
    clone = model.clone()
    patches = {}
    generator = torch.Generator().manual_seed(5)
    for name, parameter in clone.model.named_parameters():
        if re.search(r"attn\d\.to_\w+(\.0)?\.weight|ff\.net\.\S+weight", name):
            rows, columns = parameter.shape
            # Not scaled by the weight itself: a loaded model's weights have the LoRAs of the last run in them.
            update = torch.randn(rows, rank, generator=generator) @ torch.randn(rank, columns, generator=generator)
            patches[name] = ("diff", (update * 0.2 / (rank * columns) ** 0.5,))
    assert len(patches) == 70
    assert sorted(clone.add_patches(patches, strength)) == sorted(patches)
    return clone


def one_call(model, sigma=3.0):
    """The network's prediction for one noisy latent, as a sampler asks for it; LoRAs only if it is loaded."""
    generator = torch.Generator().manual_seed(3)
    x, context = torch.randn(2, 4, 24, 16, generator=generator), torch.randn(2, 77, 48, generator=generator)
    with torch.inference_mode():
        options = {"c_crossattn": context, "transformer_options": {}}
        return model.model.apply_model(x, torch.full((2,), sigma), **options).float()


# -- the picture ------------------------------------------------------------------------------------------------------


def test_one_call_is_about_as_near_as_one_in_bfloat16(studio, quantize):
    """The floor is what everybody accepts: the same network in bfloat16 instead of float32."""
    model = checkpoints.tiny_sd15(width=64, context=48)
    full = one_call(model)
    floor = relative(one_call(checkpoints.tiny_sd15(width=64, context=48, dtype=torch.bfloat16)), full)
    assert 0.005 < floor < 0.03
    assert 1e-4 < relative(one_call(quantize(model)), full) < 1.5 * floor  # measured: 1.25
    assert 1e-4 < relative(one_call(quantize(model, mode="weight_only")), full) < floor  # 0.72


def test_weight_only_is_nearer_than_int8_arithmetic(studio, baseline, quantize):
    int8, weight_only = quantize(studio.model), quantize(studio.model, mode="weight_only")
    assert len(int8_layers(int8)) == len(int8_layers(weight_only)) == 70
    assert 0 < relative(studio.sample(weight_only), baseline) < relative(studio.sample(int8), baseline)
    assert "computed in full precision" in studio.report(weight_only)


def test_sampling_stays_near_and_the_report_says_what_was_done(studio, baseline, quantize):
    model = quantize(studio.model)
    waiting = studio.report(model)
    assert "70 of 80 linear layers in int8" in waiting and "not sampled yet" in waiting
    assert relative(studio.sample(model), baseline) < 0.05
    report = studio.report(model)
    assert "active in 70 linear layers over 2 model calls; 0 fallbacks" in report
    assert "kept 10 layers in full precision: it embeds or modulates" in report
    assert re.search(r"largest error of a layer's output: \d\.\d\d%", report)
    assert re.search(r"1\.8 MB -> 0\.\d MB", report)


def test_the_table_has_every_layer_with_its_decision(studio):
    result = studio.nodes["PacelineQuantizeInt8"].execute(model=studio.model, include="ff", preset="quality").result
    lines = result[1].splitlines()
    table = [line for line in lines if re.match(r"\w+[\w.]+: \d+ x \d+ -> \d+; ", line)]
    assert len(table) == 80
    assert sum("; int8" in line and re.search(r"error \d+\.\d\d%", line) is not None for line in table) >= 14
    assert all("kept (" in line or "; int8" in line for line in table)


def test_rotation_and_its_group_follow_the_weight_into_the_layer(studio, baseline):
    """What Chooser decides for outliers (see test_quantization_layers) computes the same as the dense layer."""
    from paceline.optimizers.hosts.comfyui.quantization.linear import quantized_linear
    from paceline.optimizers.quantization.kernels import KERNELS
    from paceline.optimizers.quantization.rounding import quantize_weight

    generator = torch.Generator().manual_seed(0)
    layer = torch.nn.Linear(64, 96)
    x = torch.randn(5, 33, 64, generator=generator)
    x[..., 3] *= 60  # an outlier channel
    errors = {}
    for rotation in (0, 16, 64):
        weight = quantize_weight(layer.weight.detach(), rotation)
        with torch.inference_mode():
            expected = layer(x)
            results = [
                quantized_linear(layer, weight, torch.float32, kernel, False)(x) for kernel in (None, KERNELS[0])
            ]
        assert torch.equal(*results)  # ours and comfy-kitchen's
        errors[rotation] = relative(results[0], expected)
    assert errors[64] < errors[16] < errors[0] and errors[64] < 0.03


# -- the life of the clones --------------------------------------------------------------------------------------------


def test_twenty_switches_leave_the_original_as_it_was(studio, baseline, quantize):
    before = weights(studio.model)
    converted = quantize(studio.model)
    images = [studio.sample(which) for _ in range(20) for which in (converted, studio.model)]
    assert all(torch.equal(image, baseline) for image in images[1::2])
    assert all(torch.equal(image, images[0]) for image in images[::2])
    assert not torch.equal(images[0], baseline)
    assert unchanged(studio.model, before)


def test_taking_the_node_off_gives_the_original_network_back(studio, baseline, quantize):
    removed = studio.run("PacelineRemoveOptimizations", model=studio.tome(quantize(studio.model)))
    assert removed.model is studio.model.model
    assert torch.equal(studio.sample(removed), baseline)


def test_a_second_node_starts_from_the_file_again(studio, quantize):
    twice = quantize(quantize(studio.model, mode="weight_only"), include="attn1")
    assert studio.report(twice).count("Quantize int8") == 1
    assert len(int8_layers(twice)) == 28
    assert torch.equal(studio.sample(twice), studio.sample(quantize(studio.model, include="attn1")))


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


def test_a_copy_of_its_own_for_another_device(studio, quantize):
    """ComfyUI asks the factory for an independent model: multi-GPU clones, and clones without dynamic VRAM."""
    converted = quantize(studio.model)
    factory, arguments = converted.cached_patcher_init
    other = factory(*arguments, disable_dynamic=True)
    assert other.model is not converted.model
    assert len(int8_layers(other)) == 70
    clone = converted.clone(model_override=(other.model, ({}, {}, {}, set())))
    assert torch.equal(studio.sample(clone), studio.sample(converted))


# -- LoRA --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strength", [0.5, 1.0])
def test_lora_before_and_after_is_as_near_as_without(studio, baseline, quantize, strength):
    converted = quantize(studio.model)
    floor = relative(studio.sample(converted), baseline)
    expected = studio.sample(with_lora(studio.model, strength))
    assert relative(expected, baseline) > 3 * floor  # it does something that int8 could lose
    before, after = quantize(with_lora(studio.model, strength)), with_lora(converted, strength)
    first, second = studio.sample(before), studio.sample(after)
    assert torch.equal(first, second)
    assert relative(first, expected) < 1.5 * floor
    assert "0 fallbacks" in studio.report(before)
    assert torch.equal(studio.sample(converted), studio.sample(quantize(studio.model)))  # and it is gone afterwards


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


def _one_reported_call(model, studio):
    """Count one call by the technique itself: a sampler would load the whole model first."""
    from paceline.optimizers.activity import Activity
    from paceline.optimizers.hosts.comfyui.stack import ModelCall, stack_of

    technique = stack_of(model).techniques[0]
    activity = Activity(model_calls=1)
    technique.install(ModelCall(model.model, torch.ones(1), {}), activity)
    summary = technique.summarize(activity)
    assert summary.state == "partly"
    return "\n".join((summary.text, *summary.details))


def test_partial_loading_without_a_lora_changes_nothing(studio, quantize):
    converted = quantize(studio.model)
    studio.sample(converted, steps=1)
    whole = one_call(converted)
    converted.detach()
    with torch.inference_mode():
        converted.patch_model(device_to=converted.load_device, lowvram_model_memory=converted.model_size() // 3)
    assert any(layer.comfy_cast_weights for layer in int8_layers(converted).values())
    assert torch.equal(one_call(converted), whole)
    converted.detach()


# -- memory ------------------------------------------------------------------------------------------------------------


def test_sixteen_bit_linear_weights_are_halved_and_the_rest_is_shared(studio, quantize):
    import comfy.model_management
    from paceline.optimizers.hosts.comfyui.stack import stack_of

    model = checkpoints.tiny_sd15(width=128, context=48, dtype=torch.float16)
    converted = quantize(model)
    decisions = stack_of(converted).techniques[0].decisions
    chosen = [verdict for verdict in decisions.verdicts if verdict.weight is not None]
    before = sum(verdict.layer.nbytes for verdict in chosen)
    after = sum(verdict.weight.nbytes for verdict in chosen)
    assert 0.5 < after / before < 0.52  # a scale for each row comes on top
    assert parameter_bytes(model) - parameter_bytes(converted) == pytest.approx(before - after, rel=0.02)
    assert comfy.model_management.module_size(converted.model) < comfy.model_management.module_size(model.model)
    assert converted.model_size() == comfy.model_management.module_size(converted.model)
    together = {p.untyped_storage().data_ptr() for p in model.model.parameters()}
    others = [p for n, p in converted.model.named_parameters() if not hasattr(p, "_qdata") and ".bias" not in n]
    assert others and all(p.untyped_storage().data_ptr() in together for p in others)


def test_quantising_needs_little_memory_beside_the_model():
    """One float32 layer at a time, beside the new weights: a process of its own, so that nothing else is counted."""
    import json
    import subprocess
    import sys

    from comfy_host.paths import ROOT

    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "comfyui" / "quantizing_memory.py")],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["most"] < 1.6 * found["model"], found
    assert found["linear_after"] < 0.52 * found["linear_before"], found


# -- progress, cancelling, errors --------------------------------------------------------------------------------------


def test_progress_is_shown_and_cancelling_leaves_the_model_as_it_was(studio, baseline, quantize):
    import comfy.model_management
    import comfy.utils

    steps = []

    def show(value, total, preview, **_):
        steps.append((value, total))
        if value < total:
            comfy.model_management.interrupt_current_processing(True)

    comfy.utils.set_progress_bar_global_hook(show)
    try:
        # ComfyUI passes on a first step and the last, and in between what the eye can follow.
        with pytest.raises(comfy.model_management.InterruptProcessingException):
            quantize(studio.model)
    finally:
        comfy.utils.set_progress_bar_global_hook(None)
        comfy.model_management.interrupt_current_processing(False)
    assert steps[0] == (1, 80) and steps[-1][0] < 80
    assert torch.equal(studio.sample(studio.model), baseline)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"include": "("}, r"include is '\(', which is not a regular expression.*Name layers by parts"),
        ({"exclude": "["}, r"exclude is '\[', which is not a regular expression"),
        ({"preset": "best"}, "preset is 'best'. It must be one of: quality, balanced, speed"),
        ({"include": "", "exclude": "."}, "leave no layer of this BaseModel .UNetModel. to quantise.*include"),
        ({"device": "gpu"}, "device is gpu, but ComfyUI has no GPU for this model. Choose auto or cpu"),
        # 32 channels: never quicker, on any machine
        ({"include": ""}, r"None of the 80 linear layers .* gains from int8 here: .* at 0\.\d\d x.*weight_only"),
    ],
)  # fmt: skip
def test_errors_name_what_is_wrong_and_leave_the_model_alone(studio, baseline, quantize, settings, message):
    with pytest.raises(Exception, match=re.compile(message, re.DOTALL)):
        quantize(studio.model, **settings)
    assert torch.equal(studio.sample(studio.model), baseline)


def test_a_slower_layer_that_was_asked_for_is_called_slower(studio, quantize):
    text = studio.nodes["PacelineQuantizeInt8"].execute(model=studio.model, **TINY).result[1]
    assert re.search(r"slower here than in full precision: 0\.\d\d x", text)
    assert "weight_only" in text


def test_weights_that_only_their_loader_understands_are_refused(studio, quantize):
    class Packed(torch.nn.Parameter):
        pass

    model = checkpoints.tiny_sd15(width=32, context=48)
    layer = model.model.diffusion_model.input_blocks[1][1].transformer_blocks[0].attn1.to_q
    layer.weight = Packed(layer.weight.data, requires_grad=False)
    with pytest.raises(Exception, match=r"of the class Packed \(diffusion_model.*Load a safetensors file"):
        quantize(model)


def test_a_module_put_in_by_another_node_is_refused(studio, quantize):
    model = studio.model.clone()
    model.add_object_patch("diffusion_model.time_embed.0", torch.nn.Linear(32, 128))
    with pytest.raises(Exception, match="its own module in the place of diffusion_model.time_embed.0.*after the ones"):
        quantize(model)


# -- calibration, other families, other nodes --------------------------------------------------------------------------


def test_calibration_measures_real_tokens_and_leaves_the_model_alone(studio, baseline, quantize):
    before = weights(studio.model)
    connected = {"conditioning": studio.positive, "latent": {"samples": torch.zeros(1, 4, 24, 16)}}
    text = studio.nodes["PacelineQuantizeInt8"].execute(model=studio.model, **TINY, **connected).result[1]
    assert "token counts of one sampling step with the connected conditioning" in text
    assert "input_blocks.1.1.transformer_blocks.0.attn1.to_q: 768 x 32 -> 32" in text
    assert unchanged(studio.model, before)
    assert torch.equal(studio.sample(studio.model), baseline)
    with pytest.raises(Exception, match="Connect the latent that will be sampled too"):
        quantize(studio.model, conditioning=studio.positive)


@pytest.mark.parametrize("name", ["flux", "sd3", "qwen_image", "wan", "lumina2"])
def test_transformers(studio, quantize, name):
    model, text = build(name), conditioning(name)

    def sample(chosen):
        return in_process.sample(chosen, text, text, latent(name), steps=1, seed=7, cfg=1.0, scheduler="simple")

    before = sample(model)
    converted = quantize(model, include=r"attn|mlp|ff|linear[12]|attention\.|feed_forward")
    layers = int8_layers(converted)
    assert layers
    borders = r"modulation|adaLN|_in\b|embed|final_layer|head\b|norm_out|proj_out$"
    assert not [name for name in layers if re.search(borders, name)]
    assert 0 < relative(sample(converted), before) < 0.05
    assert torch.equal(sample(model), before)
    assert "0 fallbacks" in studio.report(converted)


def test_beside_the_other_nodes_in_any_order(studio, quantize):
    from itertools import permutations

    steps = (quantize, studio.tome, lambda m: with_lora(m, 0.7))
    images = []
    for order in permutations(steps):
        model = studio.model
        for apply in order:
            model = apply(model)
        images.append(studio.sample(model))
    assert all(torch.equal(image, images[0]) for image in images)


def test_other_nodes_patches_stay(studio, quantize, core_node):
    freeu = core_node("comfy_extras.nodes_freelunch", "FreeU_V2", model=studio.model, b1=1.3, b2=1.4, s1=0.9, s2=0.2)
    first, second = quantize(freeu), core_node(
        "comfy_extras.nodes_freelunch", "FreeU_V2", model=quantize(studio.model), b1=1.3, b2=1.4, s1=0.9, s2=0.2
    )  # fmt: skip
    assert torch.equal(studio.sample(first), studio.sample(second))
    assert not torch.equal(studio.sample(first), studio.sample(quantize(studio.model)))


def test_compiled_in_one_graph_with_the_same_bits(studio, quantize):
    from comfy_api.torch_helpers import set_torch_compile_wrapper
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    model = quantize(studio.model)
    compiled = model.clone()
    set_torch_compile_wrapper(model=compiled, backend="eager", fullgraph=True)
    assert torch.equal(studio.sample(compiled), studio.sample(model))
    assert counters["stats"]["unique_graphs"] == 1
    torch._dynamo.reset()


def test_a_compile_node_before_compiles_the_int8_network(studio, quantize):
    from comfy_api.torch_helpers import set_torch_compile_wrapper

    torch._dynamo.reset()
    compiled = studio.model.clone()
    set_torch_compile_wrapper(model=compiled, backend="eager")
    assert torch.equal(studio.sample(quantize(compiled)), studio.sample(quantize(studio.model)))
    torch._dynamo.reset()
