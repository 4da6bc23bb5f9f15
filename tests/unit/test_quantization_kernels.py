"""Every kernel computes the same layer, says what it needs, and the quickest is chosen once."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from needs import missing, package
from paceline.optimizers.quantization import chunked, timing
from paceline.optimizers.quantization.kernels import (
    KERNELS,
    ChunkedIntMM,
    Kernel,
    Kitchen,
    Reference,
    TorchAO,
    available,
    kernel_named,
)
from paceline.optimizers.quantization.rounding import quantize_rows, quantize_weight
from paceline.optimizers.quantization.timing import Shape, Timer, fastest

CPU = torch.device("cpu")


def layer(tokens=(2, 50), inputs=64, outputs=80, dtype=torch.float32, rotation=0, bias=True):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(*tokens, inputs, generator=generator).to(dtype)
    weight = quantize_weight(torch.randn(outputs, inputs, generator=generator) / inputs**0.5, rotation)
    return x, weight, torch.randn(outputs, generator=generator).to(dtype) if bias else None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rotation", [0, 16, 64])
@pytest.mark.parametrize("bias", [False, True])
def test_ours_is_comfy_kitchens_bit_for_bit(dtype, rotation, bias):
    """So a saved file gives the same image without this pack."""
    package("comfy_kitchen")
    x, weight, shift = layer(dtype=dtype, rotation=rotation, bias=bias)
    assert torch.equal(ChunkedIntMM().linear(x, weight, shift), Kitchen().linear(x, weight, shift))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("rotation", [0, 16])
def test_every_kernel_is_near_the_reference(kernel, rotation):
    x, weight, bias = layer(rotation=rotation)
    try:
        found = kernel.linear(x, weight, bias)
    except ImportError as error:
        missing(str(error))
    assert found.shape == (2, 50, 80) and found.dtype == x.dtype
    torch.testing.assert_close(found, Reference().linear(x, weight, bias), rtol=1e-4, atol=1e-4)


@settings(max_examples=25, deadline=None)
@given(tokens=st.integers(1, 700), inputs=st.sampled_from([8, 24, 72]), outputs=st.sampled_from([8, 40]))
def test_chunks_give_what_one_go_gives(tokens, inputs, outputs):
    x, weight, bias = layer((tokens,), inputs, outputs)
    values, scale = quantize_rows(x)
    sums = (values.double() @ weight.values.double().t()).float()  # exact
    expected = sums * (scale * weight.scale.reshape(1, -1)) + bias
    assert torch.equal(ChunkedIntMM().linear(x, weight, bias), expected)


def test_unsigned_and_signed_products_are_the_same(monkeypatch):
    x, weight, bias = layer((300,))
    results = []
    for unsigned in (False, True):
        monkeypatch.setattr(chunked, "prefers_unsigned", lambda unsigned=unsigned: unsigned)
        results.append(ChunkedIntMM().linear(x, weight, bias))
    assert torch.equal(*results)


def test_it_traces_in_one_graph_with_the_same_bits():
    x, weight, bias = layer()
    kernel = ChunkedIntMM()
    plus_one = lambda tokens: kernel.linear(tokens, weight, bias) + 1  # noqa: E731
    compiled = torch.compile(plus_one, backend="aot_eager", fullgraph=True)
    with torch.inference_mode():
        assert torch.equal(compiled(x), kernel.linear(x, weight, bias) + 1)
    torch._dynamo.reset()


def test_each_kernel_that_cannot_run_says_why():
    found, reasons = available(torch.device("cuda"))
    assert "for processors" in reasons[ChunkedIntMM.name]
    found, reasons = available(CPU)
    assert found[0].name == ChunkedIntMM.name and "reference" in [kernel.name for kernel in found]
    assert "more passes over memory" in reasons[TorchAO.name]
    assert kernel_named("reference").fast is False


@pytest.mark.parametrize(
    ("name", "state", "reason"),
    [
        ("cuda", {"available": False, "unavailable_reason": "no GPU"}, "no GPU"),
        ("cuda", {"available": True, "capabilities": []}, "compute capability 7.5"),
        ("cuda", {"available": True, "capabilities": ["int8_linear"], "disabled": True}, "cu130"),
        ("triton", {"available": True, "capabilities": ["int8_linear"], "disabled": True}, "--enable-triton-backend"),
        ("cuda", {"available": True, "capabilities": ["int8_linear"]}, None),
    ],
)
def test_comfy_kitchens_own_reasons_in_words(name, state, reason):
    found = Kitchen.backend_reason(name, state)
    assert found is None if reason is None else reason in found


class Pretend(Kernel):
    def __init__(self, name, seconds, fails=False):
        self.name, self.seconds, self.fails = name, seconds, fails

    def reason(self, device):
        return None

    def linear(self, x, weight, bias):
        if self.fails:
            raise RuntimeError("no such instruction\nat 0x0")
        return x


def choose(monkeypatch, *kernels):
    monkeypatch.setattr(timing, "_chosen", {})
    monkeypatch.setattr(Timer, "_measure", lambda self, shape: self.kernel.linear(None, None, None)
                        or timing.Timing(1.0, self.kernel.seconds))  # fmt: skip
    return fastest(list(kernels), Shape(64, 64, 64), CPU, torch.float32)


def test_the_quickest_is_chosen_but_only_if_clearly(monkeypatch):
    first, nearly, clearly = Pretend("first", 1.0), Pretend("nearly", 0.9), Pretend("clearly", 0.5)
    assert choose(monkeypatch, first, nearly)[0] is first
    assert choose(monkeypatch, first, nearly, clearly)[0] is clearly


def test_a_kernel_that_fails_is_named_and_another_one_taken(monkeypatch):
    kernel, failures = choose(monkeypatch, Pretend("broken", 0.1, fails=True), Pretend("other", 1.0))
    assert kernel.name == "other"
    assert failures == {"broken": "failed here: no such instruction"}


def test_timings_are_remembered_and_grow_with_the_tokens(tmp_path, monkeypatch):
    file = tmp_path / "folder" / "timings.json"
    first = Timer(ChunkedIntMM(), CPU, torch.float32, file)
    measured = first.time(Shape(64, 32, 32))
    first.remember()
    assert measured.floating > 0 and measured.int8 > 0
    assert list(json.loads(file.read_text()).values()) == [{"64x32x32r0": [measured.floating, measured.int8]}]
    monkeypatch.setattr(Timer, "_measure", lambda self, shape: pytest.fail("it was known"))
    assert Timer(ChunkedIntMM(), CPU, torch.float32, file).time(Shape(64, 32, 32)) == measured
    known = Timer(ChunkedIntMM(), CPU, torch.float32, None)
    known._known["4096x32x32r0"] = timing.Timing(2.0, 1.0)
    assert known.time(Shape(8192, 32, 32)) == timing.Timing(4.0, 2.0)


@pytest.mark.parametrize("content", ["", "[]", '{"x": ', "{}"])
def test_a_broken_file_of_timings_is_as_good_as_none(tmp_path, content):
    file = tmp_path / "timings.json"
    file.write_text(content)
    assert Timer(ChunkedIntMM(), CPU, torch.float32, file).time(Shape(32, 32, 32)).int8 > 0
