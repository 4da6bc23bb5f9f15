"""Peak memory, and the times of single steps."""

from __future__ import annotations

import mmap
from itertools import chain, repeat
from types import SimpleNamespace

import pytest
import torch
from paceline.workbench.measurement.resources import PeakMemory, StepTimes
from waiting import until


def test_peak_memory_sees_what_was_freed_again():
    device = torch.device("cpu")
    with PeakMemory(device) as idle:
        pass
    with PeakMemory(device) as memory:
        pages = mmap.mmap(-1, 256 * 2**20)  # new ones: what an allocator keeps for later is counted already
        torch.frombuffer(pages, dtype=torch.uint8).fill_(1)
        assert until(lambda: (memory.process_bytes or 0) - idle.process_bytes > 200 * 2**20)
        del pages
    assert memory.device_bytes is None
    assert memory.process_bytes - idle.process_bytes > 200 * 2**20


def test_peak_memory_adds_what_the_allocator_does_not_count():
    """Weights under dynamic VRAM: the allocator of torch knows nothing of them."""
    looks, beside = [], chain([3 * 2**20, 5 * 2**20], repeat(2**20))
    memory = PeakMemory(torch.device("cpu"), lambda: looks.append(next(beside)) or looks[-1])
    memory._counts = True  # as on a GPU
    memory._backend = SimpleNamespace(
        reset_peak_memory_stats=lambda device: None, max_memory_allocated=lambda device: 7 * 2**20
    )
    with memory:
        assert until(lambda: len(looks) > 2)
    assert memory.device_bytes == 12 * 2**20


class Place:
    """What a device has reached, in milliseconds."""

    def __init__(self, at):
        self.at = at

    def elapsed_time(self, later):
        return later.at - self.at


def test_steps_of_a_gpu_are_marked_and_not_waited_for(monkeypatch):
    waited, places = [], iter([Place(900.0), Place(1000.0), Place(1300.0)])
    monkeypatch.setattr("paceline.workbench.measurement.resources.synchronize", waited.append)
    marked = StepTimes(torch.device("cuda"), lambda: 0.0, lambda: next(places))
    for _ in range(3):
        marked.step()
    assert marked.mean() == pytest.approx(0.2)
    assert not waited
