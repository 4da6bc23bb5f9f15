"""The int8 product gives comfy-kitchen's bits; a size is timed once, and decides alike on a busy machine."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from needs import package
from paceline.optimizers.in_comfyui.quantization import int8_kernel
from paceline.optimizers.in_comfyui.quantization.int8_kernel import on_processor
from paceline.optimizers.quantization import layer_times
from paceline.optimizers.quantization.layer_times import KernelFailed, Timing, Timings, interleaved_seconds
from paceline.optimizers.quantization.rounding import quantize_rows, quantize_weight

CPU = torch.device("cpu")


def layer(dtype=torch.float32, bias=True):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 50, 64, generator=generator).to(dtype)
    weight = quantize_weight(torch.randn(80, 64, generator=generator) / 8)
    return x, weight.values, weight.scale, torch.randn(80, generator=generator).to(dtype) if bias else None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bias", [False, True])
def test_ours_is_comfy_kitchens_bit_for_bit(dtype, bias):
    """So a saved file gives the same image without this pack."""
    package("comfy_kitchen")
    from comfy_kitchen import int8_linear

    made = layer(dtype, bias)
    assert torch.equal(on_processor(*made), int8_linear(*made, dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_of_zeros_and_of_the_least_and_largest_numbers(dtype):
    x = torch.zeros(3, 8, dtype=dtype)
    x[1] = torch.finfo(dtype).tiny
    x[2] = torch.finfo(dtype).max
    values, scale = quantize_rows(x)
    assert (values[0] == 0).all() and scale.isfinite().all()
    assert (values[2] >= 126).all()  # in 16 bits the scale itself is rounded


def test_a_torch_that_takes_no_unsigned_numbers_gets_signed_ones(monkeypatch):
    """As torch 2.11 on processors: ``_int_mm`` raises for uint8, and the kernel must not be lost for that."""
    product = torch._int_mm

    def signed_only(a, b):
        if a.dtype == torch.uint8:
            raise RuntimeError("expected int8")
        return product(a, b)

    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: True, raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False, raising=False)
    int8_kernel.prefers_unsigned.cache_clear()
    try:
        expected = on_processor(*layer())
        int8_kernel.prefers_unsigned.cache_clear()
        monkeypatch.setattr(torch, "_int_mm", signed_only)
        assert torch.equal(on_processor(*layer()), expected)
    finally:
        int8_kernel.prefers_unsigned.cache_clear()


def timings(file=None, layers=None):
    return Timings(CPU, torch.float32, "ours", layers or plain_layers, file)


def plain_layers(quantized, weight, bias):
    return (
        lambda x: torch.nn.functional.linear(x, weight, bias),
        lambda x: on_processor(x, quantized.values, quantized.scale, bias),
    )


def that_measure(file: Path, *seconds: float) -> Timings:
    made = timings(file)
    made._measure = lambda inputs, outputs: list(seconds)
    return made


def test_times_are_kept_by_machine_and_size(tmp_path):
    file = tmp_path / "folder" / "timings.json"
    first = timings(file)
    measured = first.time(32, 48)
    first.save()
    assert measured.floating > 0 and measured.int8 > 0
    ((section, kept),) = json.loads(file.read_text()).items()
    assert section.endswith(f"one core | {torch.__version__} | float32 | whole layers | ours")
    assert kept == {"256x32x48": [measured.floating, measured.int8]}
    assert timings(file, layers=None).known(32, 48) == measured and timings(file).known(48, 32) is None


def test_a_size_that_cannot_be_computed_says_why_and_is_not_tried_again():
    errors = [torch.OutOfMemoryError("out of memory"), RuntimeError("no such instruction\nat 0x0")]

    def failing(*_):
        raise errors.pop(0)

    made = timings(layers=failing)
    with pytest.raises(RuntimeError, match="out of memory"):
        made.time(64, 64)
    for _ in range(2):  # the second time it is known
        with pytest.raises(KernelFailed, match="^failed here: no such instruction$"):
            made.time(64, 64)


def test_what_was_decided_stays_decided(tmp_path):
    file = tmp_path / "timings.json"
    quiet, busy = that_measure(file, 2.0, 1.0), that_measure(file, 4.0, 2.0)
    assert quiet.time(64, 64) == Timing(2.0, 1.0)
    quiet.save()
    assert that_measure(file, 1.0, 2.0).time(64, 64) == Timing(2.0, 1.0)
    assert (busy.time(64, 64), busy.time(64, 128)) == (Timing(4.0, 2.0), Timing(4.0, 2.0))
    busy.save()  # a second server that did not know of it yet
    assert that_measure(file, 1.0, 2.0).time(64, 64) == Timing(2.0, 1.0)
    assert that_measure(file, 5.0, 1.0).time(64, 128) == Timing(4.0, 2.0)


@pytest.mark.parametrize(
    "content",
    [
        *(
            f'{{"SECTION": {{"256x64x64": {value}}}}}'
            for value in ('"x"', "[null]", "[NaN, 1e999]", "[-1.0]", "[1, -1]", f"[1{'0' * 400}, 1]")
        ),
        '{"SECTION": 7}',
        '[{"a": NaN}]',
        "",
        "\x00",
    ],
)
def test_a_damaged_file_of_times_is_measured_anew(tmp_path, content):
    file = tmp_path / "times.json"
    first = that_measure(file, 1.0, 1.0)
    first.time(64, 64)
    first.save()
    (section,) = json.loads(file.read_text())
    file.write_text(content.replace("SECTION", section))
    made = that_measure(file, 3.0, 1.0)
    assert made.time(64, 64) == Timing(3.0, 1.0)
    made.save()
    assert json.loads(file.read_text()) == {section: {"256x64x64": [3.0, 1.0]}}


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
