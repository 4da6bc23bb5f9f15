"""Weights that others have quantised or packed: seen before anything reads them, and said in one sentence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from paceline import Precision, QuantizeInt8, optimize, report
from paceline.core.errors import UnsupportedModel
from paceline.core.weights import foreign_weight
from random_pipelines import picture, small
from torch.nn import Linear, Parameter


class Params4bit(Parameter):
    """As bitsandbytes has it: a subclass of Parameter with packed numbers."""


class Packed(torch.Tensor):
    """As loaders of GGUF files have it: bytes, whose ``shape`` is that of the values."""

    @property
    def shape(self) -> torch.Size:
        return torch.Size((8, 16))


def by_torchao(layer: Linear) -> None:
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    quantize_(layer, Int8WeightOnlyConfig(set_inductor_config=False))


def put(weight: torch.Tensor) -> Any:
    def change(layer: Linear) -> None:
        layer._parameters["weight"] = weight if isinstance(weight, Parameter) else Parameter(weight, False)

    return change


FOREIGN = {
    "Int8Tensor": by_torchao,
    "Params4bit": put(Params4bit(torch.zeros(64, 1, dtype=torch.uint8), False)),
    "Packed": put(torch.zeros(8, 17, dtype=torch.uint8).as_subclass(Packed)),
    "packed into uint8": put(torch.zeros(8, 16, dtype=torch.uint8)),
    "packed into the shape [8, 4]": put(torch.zeros(8, 4)),
}


@pytest.mark.parametrize("said", FOREIGN)
def test_each_kind_is_found_and_named(said: str) -> None:
    network = torch.nn.Sequential(Linear(16, 16), torch.nn.Sequential(Linear(16, 8)))
    assert foreign_weight(network) is None
    FOREIGN[said](network[1][0])
    found = foreign_weight(network)
    assert found is not None and found[0] == "1.0.weight" and found[1].endswith(said)


def test_what_is_plain_is_no_foreign_weight() -> None:
    from torch._subclasses import FakeTensorMode

    for dtype in (torch.float16, torch.float8_e4m3fn):
        assert foreign_weight(Linear(4, 4).to(dtype)) is None
    assert foreign_weight(Linear(4, 4, device="meta")) is None
    with FakeTensorMode():
        assert foreign_weight(Linear(4, 4)) is None
    norm = torch.nn.BatchNorm2d(4)  # whose buffer counts in integers
    norm.register_parameter("places", Parameter(torch.zeros(3, dtype=torch.int64), False))
    assert foreign_weight(norm) is None


@pytest.mark.parametrize("setting", [QuantizeInt8(mode="weight_only"), Precision("bf16")], ids=repr)
def test_a_model_that_torchao_has_quantised_is_refused_in_diffusers(setting: Any) -> None:
    pipeline = small("sd15")
    for layer in pipeline.denoiser.mid_block.modules():
        if type(layer) is Linear:
            by_torchao(layer)
    expected = picture(pipeline)
    with pytest.raises(UnsupportedModel, match=r"of the class Int8Tensor \(mid_block.*only the loader or quantiser"):
        optimize(pipeline.pipe, setting, components=["unet"])
    assert not report(pipeline.pipe).lines
    assert torch.equal(picture(pipeline), expected)
