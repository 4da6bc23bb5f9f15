"""Which of two functions is quicker is decided the same way on a busy machine; with noise that was recorded on one."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from paceline.optimizers.quantization.layer_times import KeptTimes, interleaved_seconds

NOISE = Path(__file__).parents[1] / "data" / "noise"
CPU = torch.device("cpu")


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
    floating, int8 = interleaved_seconds(CPU, machine.functions, machine.clock)
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


def test_what_was_decided_stays_decided(tmp_path):
    file = tmp_path / "timings.json"
    quiet, busy = KeptTimes(file), KeptTimes(file)
    assert quiet.get("machine", "layer", lambda: [2.0, 1.0]) == [2.0, 1.0]
    quiet.save()
    assert KeptTimes(file).get("machine", "layer", lambda: [1.0, 2.0]) == [2.0, 1.0]
    busy.get("machine", "layer", lambda: [1.0, 3.0])
    busy.get("machine", "another", lambda: [4.0, 2.0])
    busy.save()  # a second server that did not know of it yet
    assert KeptTimes(file).get("machine", "layer", lambda: [1.0, 2.0]) == [2.0, 1.0]
    assert KeptTimes(file).get("machine", "another", lambda: [5.0, 1.0]) == [4.0, 2.0]


@pytest.mark.parametrize(
    "content",
    ['{"cpu": 7}', '[{"a": NaN}]', '{"cpu": {"a": "x", "b": [null], "c": [NaN, 1e999], "d": [-1.0]}}', "", "\x00"],
)
def test_a_damaged_file_of_times_is_measured_anew(tmp_path, content):
    file = tmp_path / "times.json"
    file.write_text(content)
    assert KeptTimes(file).get("cpu", "a", lambda: [1.0, 2.0]) == [1.0, 2.0]
    kept = KeptTimes(file)
    assert kept.get("cpu", "c", lambda: [3.0, 1.0]) == [3.0, 1.0]
    kept.save()
    assert json.loads(file.read_text())["cpu"]["c"] == [3.0, 1.0]
