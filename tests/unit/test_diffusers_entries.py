"""All methods through which a component is called: of a VAE encode and decode, whole and in tiles, and both at once."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from paceline import Attention, FuseQKV, Precision, optimize, restore
from random_pipelines import baseline, differences, distance, picture, small, state_of

INPUTS = {
    "encode": (1, 3, 64, 64), "tiled_encode": (1, 3, 64, 64), "forward": (1, 3, 64, 64),
    "decode": (1, 4, 8, 8), "tiled_decode": (1, 4, 8, 8),
}  # fmt: skip


def values(result: Any) -> torch.Tensor:
    found = result.latent_dist.mode() if hasattr(result, "latent_dist") else getattr(result, "sample", result)
    assert isinstance(found, torch.Tensor)
    return found


@pytest.mark.parametrize("entry", INPUTS)
@pytest.mark.parametrize("setting", [FuseQKV(), Precision("bf16")], ids=repr)
def test_each_entry_computes_with_the_weights_of_now(entry: str, setting: Any) -> None:
    ours, plain = small("sd15").pipe.vae, small("sd15").pipe.vae
    given = torch.randn(INPUTS[entry], generator=torch.Generator().manual_seed(0))
    optimize(ours, setting)
    assert inspect.signature(getattr(ours, entry)) == inspect.signature(getattr(plain, entry))
    with torch.no_grad():
        for change in (lambda vae: vae, lambda vae: vae.double(), lambda vae: vae.float()):
            change(ours)
            change(plain)
            tensor = given.to(next(plain.parameters()).dtype)
            expected, result = values(getattr(plain, entry)(tensor)), values(getattr(ours, entry)(tensor))
            assert result.dtype == expected.dtype
            assert distance(result, expected) <= (0.1 if isinstance(setting, Precision) else 2e-5)


def test_layers_called_outside_of_a_call_are_plain() -> None:
    pipeline, plain = small("sd15"), small("sd15")
    before = state_of(pipeline.pipe)
    layer, other = pipeline.pipe.vae.decoder.mid_block, plain.pipe.vae.decoder.mid_block
    optimize(pipeline.pipe, FuseQKV(), Attention("vanilla"))
    picture(pipeline)
    given = torch.randn(1, layer.attentions[0].to_q.in_features, 8, 8, dtype=torch.float64)
    with torch.no_grad():
        assert torch.equal(layer.double()(given), other.double()(given))
    restore(pipeline.pipe)
    layer.float()
    assert not [name for name in differences(before, state_of(pipeline.pipe)) if "attributes" in name]
    assert torch.equal(picture(pipeline), baseline("sd15"))
