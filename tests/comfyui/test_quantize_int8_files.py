"""Quantize int8 on int8 files of others: one scale for a whole matrix, and files that are damaged."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from distances import relative
from int8_models import TINY, int8_layers
from paceline.core.errors import UnsupportedModel


@pytest.fixture
def foreign(studio):
    """A MODEL as core loads it from an int8 file, each layer's weight changed by ``change(values, params)``."""
    import comfy.model_patcher
    import comfy.ops
    from comfy.quant_ops import QuantizedTensor
    from paceline.optimizers.hosts.comfyui.weights.clone import second_module

    def make(change, weight_only=False):
        source = studio.run("PacelineQuantizeInt8", model=studio.model, **TINY)

        @torch.inference_mode()
        def plain(name, module):
            if not hasattr(getattr(module, "weight", None), "_layout_cls"):
                return None
            layer = comfy.ops.mixed_precision_ops({}, torch.float32).Linear(
                module.in_features, module.out_features, bias=module.bias is not None, dtype=torch.float32
            )
            layer.load_state_dict(module.state_dict())
            values, params = change(layer.weight._qdata, layer.weight._params)
            weight = QuantizedTensor(values, layer.weight._layout_cls, params)
            layer.weight = torch.nn.Parameter(weight, requires_grad=False)
            layer._full_precision_mm = layer._full_precision_mm_config = weight_only
            return layer

        kept = {id(source.model.model_config): source.model.model_config}
        model = second_module(source.model, lambda name, tensor: tensor, plain, kept)
        model.current_patcher = None
        device = studio.model.load_device
        return comfy.model_patcher.CoreModelPatcher(model, device, device)

    return make


def one_scale(values, params):
    """Return the same weight with one scale."""
    scale = params.scale.max()
    return (values.float() * params.scale / scale).round().to(torch.int8), dataclasses.replace(params, scale=scale)


@pytest.mark.parametrize("weight_only", [False, True])
@pytest.mark.parametrize("fused", [False, True])
@torch.inference_mode()  # as ComfyUI runs all nodes
def test_one_scale_for_a_matrix_draws_what_core_draws(studio, foreign, weight_only, fused):
    model = foreign(one_scale, weight_only)
    assert next(iter(int8_layers(model).values())).weight._params.scale.shape == ()
    expected = studio.sample(model)
    ours = studio.run("PacelineQuantizeInt8", model=model, mode="weight_only" if weight_only else "int8")
    if fused:
        ours = studio.run("PacelineFuseQKV", model=ours)
    # Weight-only is computed with floating point tokens here, with rounded ones in core.
    assert relative(studio.sample(ours), expected) < (0.05 if weight_only else 1e-5)
    assert "fallback" not in studio.report(ours)
    studio.sample(studio.run("PacelineFuseQKV", model=model))


def test_a_damaged_file_is_refused_when_the_node_runs(studio, foreign):
    """What else is damage: ``tests/unit/test_quantization_rounding.py``."""
    damage = {"convrot": True, "convrot_groupsize": 1073741824}
    model = foreign(lambda values, params: (values, dataclasses.replace(params, **damage)))
    with pytest.raises(UnsupportedModel, match="An int8 layer of this file.* is damaged: .*in groups of 1073741824"):
        studio.run("PacelineQuantizeInt8", model=model)
