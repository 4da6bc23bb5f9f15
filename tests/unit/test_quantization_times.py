"""Rounding to int8; a size of layer is timed once, and decides alike on a busy machine."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from paceline.optimizers.quantization import layer_times
from paceline.optimizers.quantization.layer_choice import quantize_rows, quantize_weight
from paceline.optimizers.quantization.layer_times import KernelFailed, Timing, Timings, interleaved_seconds

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_of_zeros_and_of_the_least_and_largest_numbers(dtype):
    x = torch.zeros(3, 8, dtype=dtype)
    x[1] = torch.finfo(dtype).tiny
    x[2] = torch.finfo(dtype).max
    values, scale = quantize_rows(x)
    assert (values[0] == 0).all() and scale.isfinite().all()
    assert (values[2] >= 126).all()  # in 16 bits the scale itself is rounded


def timings(file=None, layers=None):
    return Timings(CPU, torch.float32, "ours", layers or plain_layers, file)


def plain_layers(weight, bias):
    quantized = quantize_weight(weight)
    return (
        lambda x: torch.nn.functional.linear(x, weight, bias),
        lambda x: torch.nn.functional.linear(x, quantized.values * quantized.scale, bias),
    )


def that_measure(file: Path, *seconds: float) -> Timings:
    made = timings(file)
    made._measure = lambda inputs, outputs: list(seconds)
    return made


def test_times_are_kept_by_machine_and_size(tmp_path):
    file = tmp_path / "folder" / "timings.json"
    first = timings(file)
    measured = first.time(32, 48)
    assert measured.floating > 0 and measured.int8 > 0
    ((section, kept),) = json.loads(file.read_text()).items()
    assert section.endswith(f" | {torch.__version__} | float32 | whole layers | ours")
    assert kept == {"256x32x48": [measured.floating, measured.int8]}
    assert that_measure(file, 1.0, 1.0).time(32, 48) == measured


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
    assert that_measure(file, 1.0, 2.0).time(64, 64) == Timing(2.0, 1.0)
    # a second server that did not know of it yet
    assert (busy.time(64, 64), busy.time(64, 128)) == (Timing(4.0, 2.0), Timing(4.0, 2.0))
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
    that_measure(file, 1.0, 1.0).time(64, 64)
    (section,) = json.loads(file.read_text())
    file.write_text(content.replace("SECTION", section))
    assert that_measure(file, 3.0, 1.0).time(64, 64) == Timing(3.0, 1.0)
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
    clocks = SimpleNamespace(perf_counter=machine.clock)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer_times, "time", clocks)
        floating, int8 = interleaved_seconds(CPU, machine.functions)
    return floating / int8 >= 1.15


@pytest.mark.parametrize("seconds", [0.0005, 0.004, 0.15])
@pytest.mark.parametrize("speedup", [0.8, 1.0, 1.05, 1.3, 2.0])
def test_a_busy_machine_decides_as_a_quiet_one(seconds, speedup):
    right = sum(decided("one_core", seed, seconds, speedup) == (speedup > 1.15) for seed in range(100))
    assert right >= 95
