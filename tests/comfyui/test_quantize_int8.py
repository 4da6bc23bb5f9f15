"""Quantize int8 on ComfyUI's own models and int8 files: near full precision, reasons, and who else reads weights."""

import re

import pytest
import torch
from cases import often
from comfy_host import checkpoints
from comfy_host.transformers import build
from distances import relative
from int8_models import int8_layers, one_call, with_lora
from paceline.optimizers.core.errors import UnsupportedModel
from paceline.optimizers.quantization.layer_choice import protected_because
from trust.trust_nodes import others


def test_one_call_is_about_as_near_as_one_in_bfloat16(studio, quantize):
    """The floor is what everybody accepts: the same network in bfloat16 instead of float32."""
    model = checkpoints.tiny_sd15(width=64, context=48)
    full = one_call(model)
    floor = relative(one_call(checkpoints.tiny_sd15(width=64, context=48, dtype=torch.bfloat16)), full)
    assert 0.005 < floor < 0.03
    assert 1e-4 < relative(one_call(quantize(model)), full) < 1.5 * floor  # measured: 1.25
    assert 1e-4 < relative(one_call(quantize(model, mode="weight_only")), full) < floor  # 0.72


def test_sampling_stays_near_and_the_report_says_what_was_done(studio, baseline, quantize):
    model = quantize(studio.model)
    assert "70 of 80 linear layers in int8" in studio.report(model) and len(int8_layers(model)) == 70
    assert relative(studio.sample(model), baseline) < 0.05
    report = studio.report(model)
    assert "active in 70 linear layers over 2 model calls" in report and "fallback" not in report


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


def test_a_module_put_in_by_another_node_is_refused(studio, quantize):
    model = studio.model.clone()
    model.add_object_patch("diffusion_model.time_embed.0", torch.nn.Linear(32, 128))
    with pytest.raises(Exception, match="its own module in the place of diffusion_model.time_embed.0.*after the nodes"):
        quantize(model)


@pytest.mark.parametrize("name", often(["wan"], ["flux", "sd3", "qwen_image", "wan", "lumina2"]))
def test_transformers(studio, quantize, name):
    model = build(name)
    before = studio.draw(name, model)
    converted = quantize(model, include="attn, mlp, ff, linear1, linear2, attention., feed_forward")
    layers = int8_layers(converted)
    assert layers
    borders = r"modulation|adaLN|_in\b|embed|final_layer|head\b|norm_out|proj_out$"
    assert not [name for name in layers if re.search(borders, name)]
    assert 0 < relative(studio.draw(name, converted), before) < 0.05
    assert "fallback" not in studio.report(converted)


def test_a_preset_keeps_the_same_layers_of_the_same_model(comfyui):
    """Names as ComfyUI itself maps them. The reason can have other words: an embedder can be a first layer too."""
    from comfy import utils

    def linear(unet):
        names = utils.unet_to_diffusers(unet.model.model_config.unet_config)
        layers = {name for name, m in unet.model.diffusion_model.named_modules() if isinstance(m, torch.nn.Linear)}
        return {ours: comfy for ours, comfy in names.items() if comfy.removesuffix(".weight") in layers}

    for names in (
        linear(checkpoints.tiny_sd15(width=32)),
        linear(checkpoints.sdxl_layout(width=32, head_channels=32)),
        utils.flux_to_diffusers({"depth": 2, "depth_single_blocks": 2, "hidden_size": 64}),
        utils.mmdit_to_diffusers({"depth": 2, "num_blocks": 2, "hidden_size": 64}),
        utils.z_image_to_diffusers({"n_layers": 2, "n_refiner_layers": 1, "dim": 64}),
    ):
        pairs = [(ours, comfy if isinstance(comfy, str) else comfy[0]) for ours, comfy in names.items()]
        layers = {tuple(name.removesuffix(".weight") for name in pair) for pair in pairs if pair[0].endswith(".weight")}
        kept = {pair for pair in layers if protected_because(pair[0])}
        assert kept == {pair for pair in layers if protected_because(pair[1])}
        assert 5 < len(kept) < len(layers)


def test_a_merge_is_as_near_as_without_int8(studio, baseline, quantize, core_node):
    def merge(first, second):
        module = "comfy_extras.nodes_model_merging"
        return studio.sample(core_node(module, "ModelMergeSimple", model1=first, model2=second, ratio=0.3))

    other = with_lora(studio.model, 1.0)
    expected, floor = merge(studio.model, other), relative(studio.sample(quantize(studio.model)), baseline)
    assert relative(expected, baseline) > 3 * floor
    for first, second in ((studio.model, quantize(other)), (quantize(studio.model), quantize(other))):
        assert relative(merge(first, second), expected) < 1.5 * floor


def hooked(conditioning, layer, weight):
    """The conditioning with a LoRA hook on one layer, which becomes stronger in the middle."""
    import comfy.hooks

    rows, columns = weight.shape[:2]
    lora = {
        f"diffusion_model.{layer}.lora_up.weight": torch.full((rows, 1), 5 / rows**0.5),
        f"diffusion_model.{layer}.lora_down.weight": torch.ones(1, weight[0].numel()) / columns**0.5,
    }
    hooks = comfy.hooks.create_hook_lora(lora, 1.0, 0.0)
    frames = comfy.hooks.HookKeyframeGroup()
    for strength, start in ((0.2, 0.0), (1.0, 0.5)):
        frames.add(comfy.hooks.HookKeyframe(strength=strength, start_percent=start))
    hooks.set_keyframes_on_hooks(frames)
    return comfy.hooks.set_hooks_for_conditioning(conditioning, hooks)


def test_a_lora_hook_works_beside_int8_layers_and_is_refused_on_them(studio, baseline, quantize):
    model = quantize(studio.model)
    expected = studio.sample(model)
    layers = dict(studio.model.model.diffusion_model.named_modules())
    beside, name = "input_blocks.1.1.proj_in", next(iter(int8_layers(model)))
    positive = hooked(studio.positive, beside, layers[beside].weight)
    plain, floor = studio.sample(studio.model, positive=positive), relative(expected, baseline)
    assert relative(plain, baseline) > 3 * floor
    assert relative(studio.sample(model, positive=positive), plain) < 1.5 * floor
    with pytest.raises(UnsupportedModel, match="LoRA hook .* put in int8.*Load LoRA instead"):
        studio.sample(model, positive=hooked(studio.positive, name, layers[name].weight))
    assert torch.equal(studio.sample(model), expected)


def controlled(studio):
    """The prompt with a Control-LoRA, which takes what it has not from the model that it controls."""
    ((context, details),) = studio.positive
    hint = torch.rand(1, 3, 192, 128, generator=torch.Generator().manual_seed(3))
    control = others.control_lora(copy=0)[0].set_cond_hint(hint, 1.0, (0.0, 1.0))
    return [[context, {**details, "control": control, "control_apply_to_uncond": False}]]


def test_a_control_lora_is_as_near_as_without_int8(studio, baseline, quantize):
    int8 = quantize(studio.model)
    floor = relative(studio.sample(int8), baseline)
    plain = studio.sample(studio.model, positive=controlled(studio))
    assert relative(plain, baseline) > 3 * floor
    found = studio.sample(int8, positive=controlled(studio))
    assert relative(found, plain) < 3 * floor
    assert torch.equal(studio.sample(int8), studio.sample(quantize(studio.model)))


@torch.inference_mode()  # as ComfyUI runs all nodes
def test_a_files_own_int8_layers_are_left_to_comfyui(studio):
    model = others.from_int8_file(0)
    expected = studio.sample(model)
    assert relative(studio.sample(studio.run("PacelineFuseQKV", model=model)), expected) < 1e-5
    with pytest.raises(UnsupportedModel, match="quantised already.*ComfyUI computes such a file itself"):
        studio.run("PacelineQuantizeInt8", model=model)
