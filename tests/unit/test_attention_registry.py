"""Names, probing, choosing: what is said about a backend and when, and what is touched on the way."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from paceline.core.errors import BackendUnavailable
from paceline.optimizers.attention import registry
from paceline.optimizers.attention.backend import Backend, Inputs
from paceline.optimizers.attention.plain import vanilla
from paceline.optimizers.attention.registry import BACKENDS, backend_names, get, probe_backend, require


@pytest.fixture(autouse=True)
def fresh_probes(monkeypatch):
    monkeypatch.setattr(registry, "_found", {})


def made_of(function, **changes) -> Backend:
    """Return a backend for the CPU that calls ``function``."""
    return dataclasses.replace(BACKENDS["vanilla"], load=lambda: function, **changes)


@pytest.mark.parametrize("name", ["sdpa_efficient", "sdpa_cudnn", "flash", "kitchen", "sage", "xformers"])
def test_require_says_that_there_is_no_cpu_kernel(name):
    with pytest.raises(BackendUnavailable, match=f"'{name}' cannot be used here: it has no kernel for cpu") as error:
        require(name, "cpu", torch.float16)
    assert "runs on cuda" in error.value.problem and "sdpa" in error.value.remedy
    assert "install" not in str(error.value)  # installing would not help on this device


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a CUDA device")
def test_a_cuda_device_that_is_not_there_is_a_reason_and_not_a_crash():
    for backend in BACKENDS.values():
        found = probe_backend(backend, "cuda", torch.float16)
        assert not found.available and f"torch {torch.__version__} finds no CUDA device" in found.reason


def test_there_is_a_reason_and_a_remedy_for_exactly_the_unavailable():
    probes = {name: probe_backend(get(name), "cpu", torch.float32) for name in backend_names()}
    for found in probes.values():
        assert bool(found.reason) == bool(found.remedy) == (not found.available)
        assert "\n" not in found.reason
    available = {name for name, found in probes.items() if found.available}
    assert available == {"sdpa", "sdpa_flash", "sdpa_math", "vanilla"}


@pytest.mark.parametrize(
    ("wrong", "phrase"),
    [
        (lambda inputs: vanilla(Inputs(*inputs[:3], scale=3.0)), "wrong numbers"),
        (lambda inputs: vanilla(inputs) * float("nan"), "wrong numbers"),
        (lambda inputs: vanilla(inputs).transpose(1, 2), "wrong numbers"),
        (lambda inputs: vanilla(Inputs(inputs.q.flip(1), *inputs[1:])), "wrong numbers"),
    ],
)
def test_wrong_numbers_are_unavailable(wrong, phrase):
    found = probe_backend(made_of(wrong), "cpu", torch.float32)
    assert not found.available and phrase in found.reason and found.function is None


def test_approximate_backends_are_given_more_room_but_not_any():
    def noisy(amount):
        return lambda inputs: vanilla(inputs) * (1 + amount)

    assert not probe_backend(made_of(noisy(0.05)), "cpu", torch.float32).available
    assert probe_backend(made_of(noisy(0.05), exact=False), "cpu", torch.float32).available
    assert not probe_backend(made_of(noisy(0.5), exact=False), "cpu", torch.float32).available


def test_a_kernel_that_raises_gives_its_message_in_one_line():
    def failing(inputs):
        raise RuntimeError("no kernel image\n  is available\nfor execution")

    found = probe_backend(made_of(failing), "cpu", torch.float32)
    assert found.reason == "it failed a test call on cpu: RuntimeError: no kernel image is available for execution"


def test_probing_leaves_torchs_random_numbers_and_defaults_alone():
    before = torch.get_rng_state()
    with torch.device("meta"), torch.autograd.set_grad_enabled(True):
        assert probe_backend(BACKENDS["sdpa"], "cpu", torch.float32).available
    assert torch.equal(before, torch.get_rng_state())
