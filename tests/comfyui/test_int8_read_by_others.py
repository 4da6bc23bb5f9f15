"""Others that read the weights of a model in int8: they get numbers that a weight stands for, and files stay files."""

from __future__ import annotations

import pytest
import torch
from distances import relative

GENERATOR = 3


def control_lora(model):
    """A Control-LoRA with random weights, which takes the rest from the model that it controls."""
    import comfy.cldm.cldm
    import comfy.controlnet
    import comfy.ops

    left_out = ("out_channels", "dtype", "device")
    config = {key: value for key, value in model.model.model_config.unet_config.items() if key not in left_out}
    operations = comfy.ops.disable_weight_init
    whole = comfy.cldm.cldm.ControlNet(**config, hint_channels=3, dtype=torch.float32, operations=operations)
    generator, weights = torch.Generator().manual_seed(GENERATOR), {}
    own = model.model.diffusion_model.state_dict()
    for key, value in whole.state_dict().items():
        if key not in own:
            weights[key] = torch.randn(value.shape, generator=generator) * 0.05
        elif value.ndim >= 2:
            stem = key.removesuffix(".weight")
            weights[f"{stem}.up"] = torch.randn(len(value), 4, generator=generator) * 0.02
            weights[f"{stem}.down"] = torch.randn(4, value[0].numel(), generator=generator) * 0.02
    hint = torch.rand(1, 3, 192, 128, generator=generator)
    return comfy.controlnet.ControlLora(weights).set_cond_hint(hint, 1.0, (0.0, 1.0))


def controlled(studio, control):
    ((context, details),) = studio.positive
    return [[context, {**details, "control": control, "control_apply_to_uncond": False}]]


@pytest.mark.parametrize("mode", ["int8", "weight_only"])
def test_a_control_lora_is_as_near_as_without_int8(studio, baseline, quantize, mode):
    int8 = quantize(studio.model, mode=mode)
    floor = relative(studio.sample(int8), baseline)
    plain = studio.sample(studio.model, positive=controlled(studio, control_lora(studio.model)))
    assert relative(plain, baseline) > 3 * floor
    found = studio.sample(int8, positive=controlled(studio, control_lora(studio.model)))
    assert relative(found, plain) < 3 * floor
    assert torch.equal(studio.sample(int8), studio.sample(quantize(studio.model, mode=mode)))
