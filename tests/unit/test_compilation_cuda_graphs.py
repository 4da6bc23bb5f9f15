"""The bookkeeping of our own CUDA graphs, with a recording that needs no GPU; on a GPU, with a real one."""

from __future__ import annotations

import os
import subprocess
import sys
import weakref

import pytest
import torch
from comfy_host.paths import ROOT
from paceline.optimizers.compilation.cuda_graphs import MEMORY, RecordedFunction
from paceline.optimizers.compilation.failures import free_frames
from paceline.optimizers.compilation.recorded_network import RecordedNetwork, Refined
from paceline.optimizers.compilation.settings import cudagraph_trees_refusal


class Replayable:
    """Runs again what was recorded, on the tensors it was recorded with, into the tensors it returned then."""

    held_bytes = 1000

    def __init__(self, run, device=None):
        self._run = run
        self.output = run()

    def replay(self):
        with torch.no_grad():
            self.output[0].copy_(self._run()[0])


def network(x, *, control=None, scale=2.0):
    extra = control["input"].pop() if control else 0.0
    return (x * scale + extra,)


def test_a_kind_of_call_is_recorded_when_it_comes_again():
    recorded = RecordedFunction(network, Replayable)
    for round_number in range(4):
        x = torch.randn(2, 3)
        output = recorded("weights", x)[0]
        assert torch.equal(output, x * 2)
        assert (recorded.recorded, recorded.replayed) == (int(round_number > 0), max(0, round_number))


def test_results_do_not_change_when_the_next_step_is_replayed():
    recorded = RecordedFunction(network, Replayable)
    outputs = [(x, recorded("weights", x)[0]) for x in torch.randn(5, 2, 3)]
    assert all(torch.equal(output, x * 2) for x, output in outputs)


def test_sizes_values_and_control_are_kinds_of_their_own():
    recorded = RecordedFunction(network, Replayable, limit=8)
    for _ in range(3):
        for x, options in (
            (torch.randn(2, 3), {}),
            (torch.randn(4, 3), {}),
            (torch.randn(3, 2).T, {}),
            (torch.randn(2, 3), {"scale": 3.0}),
            (torch.randn(2, 3), {"control": {"input": [torch.randn(2, 3)]}}),
        ):
            expected = x * options.get("scale", 2.0) + (options["control"]["input"][0] if "control" in options else 0)
            torch.testing.assert_close(recorded("weights", x, **options)[0], expected)
    assert (recorded.recorded, recorded.replayed) == (5, 10)


def test_other_weights_are_recorded_anew_and_the_old_recordings_given_up():
    recorded = RecordedFunction(network, Replayable)
    x = torch.randn(2, 3)
    for token in ("a", "a", "b", "b", "a", "a"):
        recorded(token, x)
    assert recorded.recorded == 3


def test_the_oldest_goes_when_there_are_too_many():
    recorded = RecordedFunction(network, Replayable, limit=2)
    for size in (1, 1, 2, 2, 3, 3, 1, 1):
        recorded("weights", torch.randn(size, 3))
    assert (recorded.recorded, recorded.dropped) == (4, 2)
    assert len(recorded._variants) == 2


def test_kinds_that_take_turns_do_not_drive_each_others_recordings_out():
    """Three prompts of different lengths in each step: two are recorded, the third says why it is not."""
    recorded = RecordedFunction(network, Replayable, limit=2)
    for _ in range(5):
        for size in (1, 2, 3):
            x = torch.randn(size, 3)
            assert torch.equal(recorded("weights", x)[0], x * 2)
    assert (recorded.recorded, recorded.dropped, recorded.replayed, recorded.crowded) == (2, 0, 2 * 4, 4)
    for _ in range(3):  # the next image has one prompt: a recording that nobody uses any more makes room
        recorded("weights", torch.randn(3, 3))
    assert (recorded.recorded, recorded.dropped, recorded.replayed, recorded.crowded) == (3, 1, 8 + 3, 4)


def test_kinds_that_come_once_are_forgotten():
    recorded = RecordedFunction(network, Replayable)
    for size in range(1, 40):
        recorded("weights", torch.randn(size, 3))
    assert len(recorded._variants) == 16 and not recorded.dropped


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), MEMORY),
        (RuntimeError("operation not permitted when stream is capturing\nmore"), "operation not permitted"),
    ],
)
def test_what_cannot_be_recorded_runs_as_it_is_and_says_why(error, reason):
    def fails(run, device):
        raise error

    recorded = RecordedFunction(network, fails)
    for _ in range(4):
        x = torch.randn(2, 3)
        assert torch.equal(recorded("weights", x)[0], x * 2)
    assert reason in recorded.failure
    assert "\n" not in recorded.failure
    assert recorded.recorded == 0


def test_it_is_recorded_on_the_device_of_its_inputs():
    """Several GPUs: the one that torch calls the current one need not be the model's."""
    devices = []

    def record(run, device):
        devices.append(device)
        return Replayable(run)

    recorded = RecordedFunction(network, record)
    for _ in range(2):
        recorded("weights", torch.randn(2, 3, device="meta"))
    assert devices == [torch.device("meta")]


def test_a_number_in_another_memory_is_not_recorded_for_good():
    """A recording repeats kernels: it would keep what the processor has read once."""
    recorded = RecordedFunction(lambda x, scale: (x * float(scale),), Replayable)
    x = torch.randn(2, 3, device="meta")
    for scale in torch.arange(3.0):
        recorded("weights", x, scale)
    assert (recorded.recorded, recorded.replayed) == (0, 0)
    assert "it is given tensors on cpu and meta" in recorded.failure


def test_a_moved_buffer_is_recorded_anew():
    module = torch.nn.BatchNorm1d(3)
    seen = []

    def shifted(x):
        return (x + module.running_mean,)

    recorded = RecordedNetwork(module, shifted, Refined, Replayable)
    for version in (1, 1, 2, 2, 2):
        recorded.version = version
        if version == 2 and not seen:
            seen.append(module.running_mean)
            module.running_mean = torch.ones(3)
        x = torch.randn(2, 3)
        assert torch.equal(recorded(x)[0], x + module.running_mean)
    assert (recorded.recorded.recorded, recorded.recorded.dropped) == (2, 1)


def test_what_a_failed_recording_has_allocated_goes_while_the_error_is_still_there():
    made = []

    def fails():
        x = torch.ones(3)
        made.append(weakref.ref(x))
        try:
            y = x + 1
            made.append(weakref.ref(y))
            raise ValueError("first")
        except ValueError as error:
            raise RuntimeError("second") from error

    try:
        fails()
    except RuntimeError as error:
        assert all(one() is not None for one in made)
        free_frames(error)
        assert all(one() is None for one in made)


def test_a_recording_that_cannot_be_replayed_ends_no_run():
    """Another program's recording may have failed, and torch then raises an error at each replay."""

    class Stuck(Replayable):
        def replay(self):
            raise RuntimeError("Offset increment outside graph capture encountered unexpectedly.")

    recorded = RecordedFunction(network, Stuck)
    for _ in range(3):
        x = torch.randn(2, 3)
        assert torch.equal(recorded("weights", x)[0], x * 2)
    assert recorded.failure.startswith("a recording cannot be replayed (Offset increment")


def test_torchs_own_cuda_graphs_are_refused_with_the_allocator_that_comfyui_chooses(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cudagraph_trees_refusal() == "there is no CUDA device"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "cudaMallocAsync")
    assert "--disable-cuda-malloc" in cudagraph_trees_refusal()
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native")
    assert cudagraph_trees_refusal() is None


@pytest.mark.gpu
def test_a_real_recording_on_a_gpu():
    layer = torch.nn.Linear(64, 64, device="cuda")
    recorded = RecordedFunction(lambda x: (layer(x).relu(),))
    with torch.inference_mode():
        for _ in range(5):
            x = torch.randn(8, 64, device="cuda")
            torch.testing.assert_close(recorded(layer.weight.data_ptr(), x)[0], layer(x).relu())
    assert not recorded.failure
    assert recorded.replayed == 4


@pytest.mark.gpu
def test_a_recording_that_fails_leaves_the_process_as_it_was():
    """A number is read in the middle, which a recording may not contain. Streams, pools and later recordings go on."""
    layer = torch.nn.Linear(256, 256, device="cuda")
    stream = torch.cuda.current_stream()

    def reads(x):
        return (layer(x) * float(x.sum()),)

    failing, fine = RecordedFunction(reads), RecordedFunction(lambda x: (layer(x),))
    with torch.inference_mode():
        x = torch.randn(8, 256, device="cuda")
        for _ in range(3):
            torch.testing.assert_close(failing("weights", x)[0], reads(x)[0])
        assert "it waits for the GPU" in failing.failure and "test_compilation_cuda_graphs.py" in failing.failure
        assert torch.cuda.current_stream() == stream
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        block = torch.empty(64 * 2**20, device="cuda", dtype=torch.uint8)
        del block
        assert torch.cuda.memory_allocated() == before
        for _ in range(3):
            torch.testing.assert_close(fine("weights", x)[0], layer(x))
    assert (fine.failure, fine.replayed) == ("", 2)


UNFORESEEN = f"""
import sys
sys.path[:0] = [{str(ROOT / "tools")!r}]
from comfy_host import pack
pack.load_pack()
import torch
from paceline.optimizers.compilation.cuda_graphs import RecordedFunction

def waits(x):
    y = x + 1
    torch.cuda.synchronize()
    return (y * 2,)

before, failing, after = (RecordedFunction(run) for run in (lambda x: (x * 3,), waits, lambda x: (x - 4,)))
x = torch.ones(8, device="cuda")
for recorded, expected in ((before, 3), (failing, 4), (after, -3), (before, 3)):
    for _ in range(3):
        assert recorded("weights", x)[0].tolist() == [expected] * 8
assert failing.failure and not before.failure and not after.failure
torch.randn(8, device="cuda")
print("passed")
"""


@pytest.mark.gpu
@pytest.mark.parametrize("allocator", ["backend:native", "backend:cudaMallocAsync"])
def test_a_wait_that_torch_does_not_tell_of_leaves_the_process_as_it_was(allocator):
    """In a process of its own: the driver's allocator could end it. Random numbers and other recordings go on."""
    known = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": allocator}
    done = subprocess.run([sys.executable, "-c", UNFORESEEN], capture_output=True, text=True, timeout=300, env=known)
    assert "passed" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
