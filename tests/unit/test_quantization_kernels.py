"""Every kernel computes the same layer and says what it needs; the quickest is chosen once, on a busy machine too."""

from __future__ import annotations

import json
import random
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from needs import missing, package
from paceline.optimizers.quantization import kernels, layer_times
from paceline.optimizers.quantization.kernels import (
    KERNELS,
    ChunkedIntMM,
    Kitchen,
    Reference,
    SafeKernel,
    TorchAO,
    available,
    kernel_named,
)
from paceline.optimizers.quantization.layer_times import (
    KernelFailed,
    Shape,
    Timing,
    Timings,
    interleaved_seconds,
)
from paceline.optimizers.quantization.rounding import quantize_weight, rotate

CPU = torch.device("cpu")


def layer(tokens=(2, 50), inputs=64, outputs=80, dtype=torch.float32, rotation=0, bias=True):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(*tokens, inputs, generator=generator).to(dtype)
    values = torch.randn(outputs, inputs, generator=generator) / inputs**0.5
    weight = replace(quantize_weight(rotate(values, rotation)), rotation=rotation)
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


class Named(ChunkedIntMM):
    """Our kernel under another name, which a test says is slow for so many tokens."""

    def __init__(self, name, slow_at=0):
        self.name, self.slow_at = name, slow_at


class Failing(ChunkedIntMM):
    """Our kernel, which raises ``errors`` first, one at each call."""

    def __init__(self, name, *errors):
        self.name, self.errors = name, list(errors)

    def linear(self, x, weight, bias):
        if self.errors:
            raise self.errors.pop(0)
        return super().linear(x, weight, bias)


SMALL, LARGE = Shape(64, 64, 64), Shape(256, 64, 64)


def test_each_shape_has_the_kernel_that_is_quickest_for_it(monkeypatch):
    """And a kernel that is not clearly quicker than one before it is not preferred: they are the same here."""

    def measure(timings, kernel, shape):
        return [2.0, 20.0 if shape.tokens == kernel.slow_at else 1.0]

    monkeypatch.setattr(Timings, "_measure", measure)
    at_small, at_large = Named("slow if large", 256), Named("slow if small", 64)
    timings = Timings(CPU, torch.float32)
    for _ in range(2):
        assert timings.fastest([at_small, at_large], SMALL)[0] is at_small
        assert timings.fastest([at_small, at_large], LARGE)[0] is at_large
    assert timings.fastest([at_large, at_small], SMALL)[0] is at_small


def test_a_kernel_that_fails_is_named_and_another_one_taken():
    broken = Failing("broken", *[RuntimeError("no such instruction\nat 0x0")] * 3)
    timings = Timings(CPU, torch.float32)
    for _ in range(2):  # the second time it is known
        kernel, failures = timings.fastest([broken, Named("other")], SMALL)
        assert kernel.name == "other"
        assert failures == {"broken": "failed here: no such instruction"}
    assert len(broken.errors) == 2
    assert timings.fastest([broken, Reference()], SMALL)[0].name == "reference"
    with pytest.raises(KernelFailed, match="no such instruction"):
        timings.time(broken, SMALL)


def test_timings_are_kept_and_grow_with_the_tokens(tmp_path):
    file = tmp_path / "folder" / "timings.json"
    kernel = Named("ours")
    first = Timings(CPU, torch.float32, file)
    measured = first.time(kernel, Shape(64, 32, 32))
    first.save()
    assert measured.floating > 0 and measured.int8 > 0
    content = json.loads(file.read_text())
    ((section, timings),) = content.items()
    assert section.endswith(f"one core | {torch.__version__} | float32 | ours")
    assert timings == {"64x32x32": [measured.floating, measured.int8]}
    assert Timings(CPU, torch.float32, file).time(Failing("ours", RuntimeError()), Shape(64, 32, 32)) == measured
    content[section]["256x32x32"] = [2.0, 1.0]
    file.write_text(json.dumps(content))
    assert Timings(CPU, torch.float32, file).time(kernel, Shape(512, 32, 32)) == Timing(4.0, 2.0)


def test_a_kernel_that_raises_is_not_asked_again_and_the_layer_is_computed_in_floating_point():
    x, weight, bias = layer()
    broken = Failing("broken", RuntimeError("illegal instruction"))
    safe, floating = SafeKernel(broken), torch.ones(3)
    for _ in range(2):
        assert safe.run(lambda: broken.linear(x, weight, bias), lambda: floating) is floating
    assert not broken.errors
    assert safe.failure == "broken failed (illegal instruction): computed in floating point"


def test_memory_that_runs_out_is_raised_and_the_kernel_goes_on():
    x, weight, bias = layer()
    safe = SafeKernel(Failing("full", torch.OutOfMemoryError("out of memory")))

    def run():
        return safe.run(lambda: safe.kernel.linear(x, weight, bias), lambda: None)

    with pytest.raises(RuntimeError, match="out of memory"):
        run()
    assert torch.equal(run(), ChunkedIntMM().linear(x, weight, bias))
    assert not safe.failure


def test_a_torch_that_takes_no_unsigned_numbers_gets_signed_ones(monkeypatch):
    """As torch 2.11 on processors: ``_int_mm`` raises for uint8, and the kernel must not be lost for that."""
    product = torch._int_mm

    def signed_only(a, b):
        if a.dtype == torch.uint8:
            raise RuntimeError("expected int8")
        return product(a, b)

    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: True, raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False, raising=False)
    x, weight = torch.randn(40, 64), quantize_weight(torch.randn(48, 64))
    kernels.prefers_unsigned.cache_clear()
    try:
        expected = ChunkedIntMM().linear(x, weight, None)
        kernels.prefers_unsigned.cache_clear()
        monkeypatch.setattr(torch, "_int_mm", signed_only)
        assert torch.equal(ChunkedIntMM().linear(x, weight, None), expected)
    finally:
        kernels.prefers_unsigned.cache_clear()


@pytest.mark.parametrize(("name", "rotation"), [(ChunkedIntMM.name, 0), ("comfy-kitchen", 0), ("comfy-kitchen", 16)])
def test_a_kernel_traces_in_one_graph_with_the_same_bits(name, rotation):
    """comfy-kitchen's dispatch writes to a log, which torch cannot trace: it has to be one operator."""
    if name == "comfy-kitchen":
        package("comfy_kitchen")
    kernel, (x, weight, bias) = kernel_named(name), layer(rotation=rotation)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: kernel.linear(x, weight, bias) + 1, fullgraph=True, backend="aot_eager")
    with torch.inference_mode():
        assert torch.equal(compiled(x), kernel.linear(x, weight, bias) + 1)
    torch._dynamo.reset()


NOISE = Path(__file__).parents[1] / "data" / "noise"


class Machine:
    """Two functions whose times are the least possible, times what other programs made of that when it was recorded."""

    def __init__(self, recorded: str, seed: int, seconds: float, speedup: float) -> None:
        noise = json.loads((NOISE / f"{recorded}.json").read_text())
        self.now = 0.0
        start = random.Random(seed).randrange(len(noise["long"]))
        self.functions = [
            self._function(noise["long"][start:] + noise["long"][:start], seconds),
            self._function(noise["short"][start:] + noise["short"][:start], seconds / speedup),
        ]

    def clock(self) -> float:
        return self.now

    def _function(self, factors, seconds):
        calls = 0

        def function():
            nonlocal calls
            self.now += seconds * factors[calls % len(factors)]
            calls += 1

        return function


def decided(recorded: str, seed: int, seconds: float, speedup: float) -> bool:
    machine = Machine(recorded, seed, seconds, speedup)
    clocks = SimpleNamespace(thread_time=machine.clock, perf_counter=machine.clock, get_clock_info=time.get_clock_info)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer_times, "time", clocks)
        floating, int8 = interleaved_seconds(CPU, machine.functions)
    return floating / int8 >= 1.15


@pytest.mark.parametrize("seconds", [0.0005, 0.004, 0.15])
@pytest.mark.parametrize("speedup", [0.8, 1.0, 1.05, 1.3, 2.0])
def test_a_busy_machine_decides_as_a_quiet_one(seconds, speedup):
    right = sum(decided("one_core", seed, seconds, speedup) == (speedup > 1.15) for seed in range(100))
    assert right >= 95


def test_one_core_is_timed_and_all_are_given_back():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        seen = set()
        interleaved_seconds(CPU, [lambda: seen.add(torch.get_num_threads()), lambda: None])
        assert (seen, torch.get_num_threads()) == ({1}, 2)

        def fails():
            raise ValueError("no such kernel")

        with pytest.raises(ValueError, match="no such kernel"):
            interleaved_seconds(CPU, [fails])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def that_measure(file: Path, *seconds: float) -> Timings:
    timings = Timings(CPU, torch.float32, file)
    timings._measure = lambda kernel, shape: list(seconds)
    return timings


def test_what_was_decided_stays_decided(tmp_path):
    file, kernel = tmp_path / "timings.json", Named("ours")
    quiet, busy = that_measure(file, 2.0, 1.0), that_measure(file, 4.0, 2.0)
    assert quiet.time(kernel, SMALL) == Timing(2.0, 1.0)
    quiet.save()
    assert that_measure(file, 1.0, 2.0).time(kernel, SMALL) == Timing(2.0, 1.0)
    assert (busy.time(kernel, SMALL), busy.time(kernel, LARGE)) == (Timing(4.0, 2.0), Timing(4.0, 2.0))
    busy.save()  # a second server that did not know of it yet
    assert that_measure(file, 1.0, 2.0).time(kernel, SMALL) == Timing(2.0, 1.0)
    assert that_measure(file, 5.0, 1.0).time(kernel, LARGE) == Timing(4.0, 2.0)


@pytest.mark.parametrize(
    "content",
    [
        *(
            f'{{"SECTION": {{"64x64x64": {value}}}}}'
            for value in ('"x"', "[null]", "[NaN, 1e999]", "[-1.0]", "[1, -1]", f"[1{'0' * 400}, 1]")
        ),
        '{"SECTION": 7}',
        '[{"a": NaN}]',
        "",
        "\x00",
    ],
)
def test_a_damaged_file_of_times_is_measured_anew(tmp_path, content):
    file, kernel = tmp_path / "times.json", Named("ours")
    section = Timings(CPU, torch.float32)._section(kernel)
    file.write_text(content.replace("SECTION", section))
    timings = that_measure(file, 3.0, 1.0)
    assert timings.time(kernel, SMALL) == Timing(3.0, 1.0)
    timings.save()
    assert json.loads(file.read_text()) == {section: {SMALL.key: [3.0, 1.0]}}
