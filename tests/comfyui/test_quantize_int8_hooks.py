"""Quantize int8 where others read its weights: LoRA hooks, core's merging of models, Control-LoRAs."""

from __future__ import annotations

import pytest
import torch
from cases import often
from distances import relative
from int8_models import int8_layers, with_lora
from paceline.core.errors import UnsupportedModel
from trust.trust_nodes import others


@pytest.mark.parametrize("which", often(["both"], ["first", "second", "both"]))
def test_a_merge_is_as_near_as_without_int8(studio, baseline, quantize, core_node, which):
    def merge(first, second):
        module = "comfy_extras.nodes_model_merging"
        return studio.sample(core_node(module, "ModelMergeSimple", model1=first, model2=second, ratio=0.3))

    other = with_lora(studio.model, 1.0)
    expected, floor = merge(studio.model, other), relative(studio.sample(quantize(studio.model)), baseline)
    assert relative(expected, baseline) > 3 * floor
    first = studio.model if which == "second" else quantize(studio.model)
    second = other if which == "first" else quantize(other)
    assert relative(merge(first, second), expected) < 1.5 * floor


def hooked(conditioning, layer, weight, keyframes=False):
    """The conditioning with a LoRA hook on one layer."""
    import comfy.hooks

    rows, columns = weight.shape[:2]
    lora = {
        f"diffusion_model.{layer}.lora_up.weight": torch.full((rows, 1), 5 / rows**0.5),
        f"diffusion_model.{layer}.lora_down.weight": torch.ones(1, weight[0].numel()) / columns**0.5,
    }
    hooks = comfy.hooks.create_hook_lora(lora, 1.0, 0.0)
    if keyframes:
        frames = comfy.hooks.HookKeyframeGroup()
        for strength, start in ((0.2, 0.0), (1.0, 0.5)):
            frames.add(comfy.hooks.HookKeyframe(strength=strength, start_percent=start))
        hooks.set_keyframes_on_hooks(frames)
    return comfy.hooks.set_hooks_for_conditioning(conditioning, hooks)


@pytest.mark.parametrize("keyframes", [False, True])
def test_a_lora_hook_works_beside_int8_layers_and_is_refused_on_them(studio, baseline, quantize, keyframes):
    model = quantize(studio.model)
    expected = studio.sample(model)
    layers = dict(studio.model.model.diffusion_model.named_modules())
    beside, name = "input_blocks.1.1.proj_in", next(iter(int8_layers(model)))
    positive = hooked(studio.positive, beside, layers[beside].weight, keyframes)
    plain, floor = studio.sample(studio.model, positive=positive), relative(expected, baseline)
    assert relative(plain, baseline) > 3 * floor
    assert relative(studio.sample(model, positive=positive), plain) < 1.5 * floor
    with pytest.raises(UnsupportedModel, match="LoRA hook .* put in int8.*Load LoRA instead"):
        studio.sample(model, positive=hooked(studio.positive, name, layers[name].weight, keyframes))
    assert torch.equal(studio.sample(model), expected)


def control_lora():
    """A Control-LoRA with random weights, which takes the rest from the model that it controls."""
    (made,) = others.control_lora(copy=0)
    hint = torch.rand(1, 3, 192, 128, generator=torch.Generator().manual_seed(3))
    return made.set_cond_hint(hint, 1.0, (0.0, 1.0))


def controlled(studio, control):
    ((context, details),) = studio.positive
    return [[context, {**details, "control": control, "control_apply_to_uncond": False}]]


@pytest.mark.parametrize("mode", ["int8", "weight_only"])
def test_a_control_lora_is_as_near_as_without_int8(studio, baseline, quantize, mode):
    int8 = quantize(studio.model, mode=mode)
    floor = relative(studio.sample(int8), baseline)
    plain = studio.sample(studio.model, positive=controlled(studio, control_lora()))
    assert relative(plain, baseline) > 3 * floor
    found = studio.sample(int8, positive=controlled(studio, control_lora()))
    assert relative(found, plain) < 3 * floor
    assert torch.equal(studio.sample(int8), studio.sample(quantize(studio.model, mode=mode)))
