"""``auto`` on a device with several exact kernels: each kind of call is timed once, and the quickest kept.

Real kernels of the CPU stand for those of a GPU; those that must be slow or fail are made so.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest
import torch
from paceline.core.activity import Activity
from paceline.optimizers.attention import quickest
from paceline.optimizers.attention.backend import Inputs
from paceline.optimizers.attention.policy import AttentionPolicy
from paceline.optimizers.attention.quickest import OWN, QuickestKernel
from paceline.optimizers.attention.registry import get

CPU = torch.device("cpu")


class Kernel:
    """Attention that does its work several times over, and counts."""

    def __init__(self, times=1, *errors):
        self.times, self.errors, self.calls = times, list(errors), Counter()

    def __call__(self, inputs):
        self.calls[inputs.q.shape[2]] += 1
        if self.errors:
            raise self.errors.pop(0)
        for _ in range(self.times):
            out = get("sdpa").load()(inputs)
        return out


def tensors(tokens=64, heads=4, size=32):
    return [torch.randn(1, heads, tokens, size) for _ in range(3)]


def kernels(file=None, **rivals):
    return QuickestKernel(rivals, CPU, torch.float32, file)


def test_the_quickest_kernel_is_kept_for_each_shape_and_timed_in_the_first_call_only():
    slow, quick = Kernel(6), Kernel()
    choice = kernels(sdpa_flash=quick)
    assert choice.choose(slow, Inputs(*tensors())) == ("sdpa_flash", quick)
    timed = slow.calls[64], quick.calls[64]
    assert min(timed) >= 5
    assert choice.choose(slow, Inputs(*tensors())) == ("sdpa_flash", quick)
    assert (slow.calls[64], quick.calls[64]) == timed
    assert choice.choose(quick, Inputs(*tensors(48)))[0] in choice.names
    assert quick.calls[48]
    first, second = choice.lines()
    assert first.startswith("timed for 64 x 64 tokens, head size 32, float32: sdpa ")
    assert first.endswith("sdpa_flash is used") and "48 x 48" in second


def test_a_kernel_that_is_not_clearly_quicker_changes_nothing(tmp_path):
    file = tmp_path / "times.json"
    same = Kernel()
    choice = kernels(file, sdpa_flash=same)
    choice.choose(same, Inputs(*tensors()))
    choice.save()
    ((section, times),) = json.loads(file.read_text()).items()
    ((sizes, _),) = times.items()
    assert section.endswith("attention: sdpa, sdpa_flash") and sizes == "(1,4,64,32)x(1,4,64,32)"
    for rival, expected in ((0.96, OWN), (0.9, "sdpa_flash")):
        file.write_text(json.dumps({section: {sizes: [1.0, rival]}}))
        assert kernels(file, sdpa_flash=same).choose(same, Inputs(*tensors()))[0] == expected


def test_a_kernel_that_raises_while_it_is_timed_leaves_the_hosts_own():
    failing = Kernel()
    choice = kernels(sdpa_flash=failing)
    own = Kernel()

    def broken_later(inputs):
        if failing.calls[64] >= 2:
            raise RuntimeError("illegal instruction")
        return failing(inputs)

    choice._rivals = {"sdpa_flash": broken_later}
    for _ in range(2):
        assert choice.choose(own, Inputs(*tensors())) == (OWN, None)
    assert failing.calls[64] == 2


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate memory")])
def test_running_out_of_memory_is_not_remembered(error):
    full = Kernel(1, error)
    choice = kernels(sdpa_flash=full)
    slow = Kernel(6)
    for _ in range(2):  # the second call does not try again: the run goes on without waiting
        assert choice.choose(slow, Inputs(*tensors())) == (OWN, None)
    assert full.calls[64] == 1
    choice.began()
    assert choice.choose(slow, Inputs(*tensors()))[0] == "sdpa_flash"


def test_nothing_is_timed_while_a_graph_is_recorded(monkeypatch):
    """A capture does not bear waiting for the device."""
    rival = Kernel()
    choice = kernels(sdpa_flash=rival)
    monkeypatch.setattr(quickest, "_is_recording", lambda tensor: True)
    assert choice.choose(Kernel(), Inputs(*tensors())) == (OWN, None)
    assert not rival.calls


def test_compiled_code_times_nothing_and_uses_the_hosts_own():
    rival = Kernel()
    choice = kernels(sdpa_flash=rival)
    seen = []

    def step(q, k, v):
        name, function = choice.choose(get("sdpa").load(), Inputs(q, k, v))
        seen.append(name)
        return (function or get("sdpa").load())(Inputs(q, k, v))

    traced = torch.compile(step, backend="eager", fullgraph=True)
    inputs = tensors(80)
    expected = get("sdpa").load()(Inputs(*inputs))
    assert torch.allclose(traced(*inputs), expected, atol=1e-6)
    assert seen == [OWN] and not rival.calls


def test_few_heads_are_timed_of_a_long_sequence(monkeypatch):
    monkeypatch.setattr(quickest, "LARGEST", 4 * 64 * 64 * 32 * 2)
    shapes = set()

    def rival(inputs):
        shapes.add(inputs.q.shape[1])
        return get("sdpa").load()(inputs)

    kernels(sdpa_flash=rival).choose(Kernel(), Inputs(*tensors()))
    assert shapes == {2}


def test_sizes_that_never_end_are_not_timed_for_ever(monkeypatch):
    monkeypatch.setattr(quickest, "MOST_SHAPES", 1)
    rival = Kernel()
    choice = kernels(sdpa_flash=rival)
    choice.choose(Kernel(), Inputs(*tensors()))
    choice.choose(Kernel(), Inputs(*tensors(48)))
    assert set(rival.calls) == {64}


def test_auto_alone_has_rivals_and_a_masked_call_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr(quickest, "RIVALS", {"cpu": ("sdpa_flash", "sdpa_math")})
    choices = {name: AttentionPolicy(name, CPU, torch.float32, [32], None) for name in ("auto", "sdpa")}
    assert choices["sdpa"].quickest is None
    auto, activity = choices["auto"], Activity()
    assert auto.quickest.names == ("sdpa", "sdpa_flash", "sdpa_math")
    inputs, mask = tensors(), torch.ones(64, 64, dtype=torch.bool)
    auto.attend(activity, "self-attention", Inputs(*inputs, mask))
    assert activity.used == {"sdpa": 1} and not auto.quickest.lines()
    auto.attend(activity, "self-attention", Inputs(*inputs))
    assert sum(activity.used.values()) == 2 and len(auto.quickest.lines()) == 1
    summary = auto.summarize(activity)
    assert "sdpa" in summary.headline and summary.headline.endswith("in 2 attention calls")
    assert summary.details == auto.quickest.lines()


def test_where_torch_must_be_deterministic_a_kernel_that_is_not_is_no_rival(monkeypatch):
    monkeypatch.setattr(quickest, "RIVALS", {"cpu": ("sdpa_flash", "sdpa_cudnn")})
    monkeypatch.setattr(quickest, "probe", lambda backend, *_: Found(backend))
    assert set(quickest.rivals_for(CPU, torch.float32, [32])) == {"sdpa_flash", "sdpa_cudnn"}
    torch.use_deterministic_algorithms(True)
    try:
        assert set(quickest.rivals_for(CPU, torch.float32, [32])) == {"sdpa_flash"}
    finally:
        torch.use_deterministic_algorithms(False)


class Found:
    """A probe that has found every kernel to work."""

    def __init__(self, backend):
        self.function = backend.load
