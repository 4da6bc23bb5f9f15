"""Backends: names, limits and probing, what is said about each and when, and what is touched on the way."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from paceline.optimizers.attention import registry
from paceline.optimizers.attention.attention_policy import AttentionPolicy
from paceline.optimizers.attention.backend import AttentionCall, Backend, Inputs, Limits
from paceline.optimizers.attention.packages import limits_of
from paceline.optimizers.attention.registry import BACKENDS, probe_backend
from paceline.optimizers.attention.torch_attention import vanilla
from paceline.optimizers.core.errors import BackendUnavailable


@pytest.fixture(autouse=True)
def fresh_probes(monkeypatch):
    monkeypatch.setattr(registry, "_found", {})


def made_of(function, **changes) -> Backend:
    """Return a backend for the CPU that calls ``function``."""
    return dataclasses.replace(BACKENDS["vanilla"], load=lambda: function, **changes)


@pytest.mark.parametrize("name", ["sdpa_efficient", "sdpa_cudnn", "flash", "kitchen", "sage", "xformers"])
def test_the_error_says_that_there_is_no_cpu_kernel(name):
    with pytest.raises(BackendUnavailable, match=f"'{name}' cannot be used here: it has no kernel for cpu") as error:
        AttentionPolicy(name, torch.device("cpu"), torch.float16, [64])
    assert "runs on cuda" in error.value.problem and "sdpa" in error.value.remedy
    assert "install" not in str(error.value)  # installing would not help on this device


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a CUDA device")
def test_a_cuda_device_that_is_not_there_is_a_reason_and_not_a_crash():
    for backend in BACKENDS.values():
        found = probe_backend(backend, "cuda", torch.float16)
        assert found.function is None and f"torch {torch.__version__} has no CUDA device" in found.reason


def test_there_is_a_reason_and_a_remedy_for_exactly_the_unavailable():
    probes = {name: probe_backend(backend, "cpu", torch.float32) for name, backend in BACKENDS.items()}
    for found in probes.values():
        assert bool(found.reason) == bool(found.remedy) == (found.function is None)
        assert "\n" not in found.reason
    available = {name for name, found in probes.items() if found.function}
    assert available == {"sdpa", "sdpa_flash", "sdpa_math", "vanilla"}


def failing(inputs):
    raise RuntimeError("no kernel image\n  is available\nfor execution")


@pytest.mark.parametrize(
    ("function", "exact", "reason"),
    [
        (lambda inputs: vanilla(Inputs(*inputs[:3], scale=3.0)), True, "wrong numbers"),
        (lambda inputs: vanilla(inputs) * float("nan"), True, "wrong numbers"),
        (lambda inputs: vanilla(inputs).transpose(1, 2), True, "wrong numbers"),
        (lambda inputs: vanilla(Inputs(inputs.q.flip(1), *inputs[1:])), True, "wrong numbers"),
        (lambda inputs: vanilla(inputs) * 1.05, True, "wrong numbers"),
        (lambda inputs: vanilla(inputs) * 1.05, False, ""),
        (lambda inputs: vanilla(inputs) * 1.5, False, "wrong numbers"),
        (failing, True, "it failed a test call on cpu: RuntimeError: no kernel image is available for execution"),
    ],
)
def test_a_kernel_that_is_wrong_or_raises_is_unavailable(function, exact, reason):
    """An approximate one is given more room, but not any."""
    found = probe_backend(made_of(function, exact=exact), "cpu", torch.float32)
    assert (found.function is None) == bool(reason) and reason in found.reason and "\n" not in found.reason


def test_probing_leaves_torchs_random_numbers_and_defaults_alone():
    before = torch.get_rng_state()
    with torch.device("meta"), torch.autograd.set_grad_enabled(True):
        assert probe_backend(BACKENDS["sdpa"], "cpu", torch.float32).function
    assert torch.equal(before, torch.get_rng_state())


def call(**changes) -> AttentionCall:
    given = {"device": "cuda", "dtype": torch.float16, "head_dim": 64, "query_tokens": 32, "key_tokens": 32}
    return AttentionCall(**{**given, **changes})


REFUSED = [
    (Limits(dtypes=(torch.float16, torch.bfloat16)), {"dtype": torch.float32}),
    (Limits(), {"dtype": torch.float8_e4m3fn}),
    (Limits(max_head_dim=128), {"head_dim": 160}),
    (Limits(max_head_dim=128), {"value_head_dim": 160}),
    (Limits(head_dim_multiple_of=8), {"head_dim": 41}),
    (Limits(accepts_other_value_head_dim=False), {"value_head_dim": 128}),
    (Limits(min_key_tokens=2), {"key_tokens": 1}),
    (Limits(), {"query_tokens": 0}),
    (Limits(max_batch=32768), {"batch": 40000}),
    (Limits(), {"query_heads": 8, "key_heads": 3}),
    (Limits(accepts_mask=False), {"mask": "bool"}),
    (Limits(accepts_mask=False), {"mask": "additive"}),
    (Limits(accepts_grad=False), {"needs_grad": True}),
]


def test_refusal_names_what_was_found_and_what_is_allowed(reads):
    reads(BACKENDS["flash"].refusal(call(device="cpu")))
    for limits, found in REFUSED:
        assert limits.refusal(call()) is None  # nothing but what was found is in the way
        reads(limits.refusal(call(**found)))


def test_compute_capability(reads):
    between = Limits(min_compute_capability=(8, 0), max_compute_capability=(9, 0))
    reads(between.capability_refusal((7, 5)), between.capability_refusal((12, 0)))
    for limits, found in ((between, (8, 0)), (between, (9, 0)), (Limits(), (3, 0))):
        assert limits.capability_refusal(found) is None


def test_sage_1_is_not_given_keys_that_leave_its_last_block_unfilled():
    """It would count what lies past the keys as keys: seen on a GPU with SageAttention 1.0.6."""
    assert limits_of("1.0.6").refusal(call(key_tokens=4096)) is None
    assert limits_of("1.0.6").refusal(call(key_tokens=77)) == "77 key tokens (takes multiples of 64)"
    assert limits_of("2.2.0").refusal(call(key_tokens=77)) is None


def flags() -> tuple[bool, ...]:
    cuda = torch.backends.cuda
    kernels = (cuda.flash_sdp_enabled, cuda.mem_efficient_sdp_enabled, cuda.math_sdp_enabled, cuda.cudnn_sdp_enabled)
    return tuple(enabled() for enabled in kernels)


def test_a_forced_kernel_raises_outside_of_its_limits_and_puts_torchs_flags_back():
    q, v = torch.randn(1, 2, 5, 16), torch.randn(1, 2, 5, 8)
    flash, before = BACKENDS["sdpa_flash"], flags()
    assert flash.refusal(AttentionCall.of(q, q, v)) == "value head size 8 with head size 16 (takes equal sizes)"
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="No available kernel"):
        flash.load()(Inputs(q, q, v))
    for name in ("sdpa_efficient", "sdpa_cudnn"):
        with pytest.raises(RuntimeError, match="No viable backend"):
            BACKENDS[name].load()(Inputs(q, q, q))
    assert flags() == before


def test_threads_with_different_forced_kernels_do_not_leave_each_others_flags_behind():
    before, q = flags(), torch.randn(1, 4, 256, 32)

    def work(name):
        function = BACKENDS[name].load()
        for _ in range(300):
            function(Inputs(q, q, q))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, ("sdpa_flash", "sdpa_math") * 2))
    assert flags() == before
