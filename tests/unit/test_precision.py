"""Precision without a host: switches of PyTorch's arithmetic, what is chosen; weights that others have packed."""

from __future__ import annotations

from contextlib import suppress
from threading import Barrier, Thread
from typing import Any

import pytest
import torch
from paceline import Precision, QuantizeInt8, optimize, report
from paceline.optimizers.core.errors import InvalidSetting, NothingGained, UnsupportedModel
from paceline.optimizers.core.weights import foreign_weight
from paceline.optimizers.precision_policy import (
    PrecisionPolicy,
    PrecisionSettings,
    arithmetic,
    choose_dtype,
    processor_dtype,
    useless_switch,
)
from random_pipelines import picture, small
from torch.nn import Linear, Parameter

MATMUL = torch.backends.cuda.matmul


def switches():
    return MATMUL.allow_fp16_accumulation, MATMUL.allow_tf32, torch.backends.cudnn.allow_tf32, MATMUL.fp32_precision


@pytest.mark.parametrize("fails", [False, True])
def test_switches_are_put_back(fails):
    before = switches()
    for _ in range(2):
        with suppress(ValueError), arithmetic(PrecisionSettings(fp16_accumulation=True, tf32=True)):
            assert switches()[:3] == (True, True, True)
            if fails:
                raise ValueError
        assert switches() == before


def test_switches_stay_on_until_the_last_of_two_threads_has_left():
    """As the clones of a MODEL for several GPUs do, which ComfyUI runs at once."""
    before, settings = switches(), PrecisionSettings(fp16_accumulation=True, tf32=True)
    both_are_inside, inside = Barrier(2, timeout=60), []

    def first():
        with arithmetic(settings):
            both_are_inside.wait()

    def last():
        with arithmetic(settings):
            both_are_inside.wait()
            thread.join()
            inside.append(switches()[:3])

    thread = Thread(target=first)
    thread.start()
    last()
    assert inside == [(True, True, True)]
    assert switches() == before


@pytest.mark.parametrize(
    ("settings", "device", "dtype", "hip"),
    [
        ({"tf32": True}, "cpu", torch.float32, None),
        ({"tf32": True}, "cuda", torch.float16, None),
        ({"fp16_accumulation": True}, "cuda", torch.bfloat16, None),
        ({"fp16_accumulation": True}, "cuda", torch.float16, "6.4"),
    ],
    ids=range(4),
)
def test_a_switch_that_would_do_nothing_is_named(reads, monkeypatch, settings, device, dtype, hip):
    monkeypatch.setattr(torch.version, "hip", hip)
    reads(*useless_switch(PrecisionSettings(**settings), torch.device(device), dtype))


def policy(dtype=torch.bfloat16, storage=None, previous=torch.float32, **more):
    settings = PrecisionSettings(**more.pop("settings", {}))
    return PrecisionPolicy("Model Precision", settings, previous, dtype, previous, storage or dtype, **more)


def test_a_dtype_in_which_a_network_does_not_work_is_refused_and_auto_takes_another(reads):
    cpu, works = torch.device("cpu"), (torch.bfloat16, torch.float32)
    reads.refused(InvalidSetting, choose_dtype, PrecisionSettings(dtype="fp16"), "Lumina2", cpu, torch.float32, works)
    assert choose_dtype(PrecisionSettings(), "UNet", cpu, torch.float32) == processor_dtype()
    assert choose_dtype(PrecisionSettings(), "UNet", torch.device("cuda"), torch.float16) == torch.float16
    assert choose_dtype(PrecisionSettings(), "UNet", cpu, torch.float32, (torch.float32,)) == torch.float32


def test_settings_that_change_nothing_are_refused_with_what_would(reads):
    both = (torch.bfloat16, torch.float32)
    reads.refused(NothingGained, policy(torch.float32).require_change, "UNet", torch.device("cpu"), both)
    policy().require_change("UNet", torch.device("cpu"), None)
    policy(torch.float32, settings={"tf32": True}).require_change("UNet", torch.device("cuda"), None)


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
