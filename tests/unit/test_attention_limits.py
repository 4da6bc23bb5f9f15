"""Limits: what they say, that they say it without a device, and that functions hold to them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from paceline.optimizers.attention.backend import AttentionCall, Inputs, Limits
from paceline.optimizers.attention.registry import BACKENDS
from paceline.optimizers.attention.sage import limits_of


def call(**changes) -> AttentionCall:
    given = {"device": "cuda", "dtype": torch.float16, "head_dim": 64, "query_tokens": 32, "key_tokens": 32}
    return AttentionCall(**{**given, **changes})


PHRASES = [
    (Limits(devices=("cuda",)), {"device": "cpu"}, "device cpu (runs on cuda)"),
    (Limits(devices=("cuda", "xpu")), {"device": "mps"}, "device mps (runs on cuda, xpu)"),
    (
        Limits(dtypes=(torch.float16, torch.bfloat16)),
        {"dtype": torch.float32},
        "dtype float32 (takes float16, bfloat16)",
    ),
    (Limits(), {"dtype": torch.float8_e4m3fn}, "dtype float8_e4m3fn (takes float32, float16, bfloat16, float64)"),
    (Limits(max_head_dim=128), {"head_dim": 160}, "head size 160 (takes up to 128)"),
    (Limits(max_head_dim=128), {"value_head_dim": 160}, "head size 160 (takes up to 128)"),
    (Limits(head_dim_multiple_of=8), {"head_dim": 41}, "head size 41 (takes multiples of 8)"),
    (
        Limits(accepts_other_value_head_dim=False),
        {"value_head_dim": 128},
        "value head size 128 with head size 64 (takes equal sizes)",
    ),
    (Limits(min_key_tokens=2), {"key_tokens": 1}, "1 key tokens (needs 2 or more)"),
    (Limits(), {"query_tokens": 0}, "0 query tokens (needs 1 or more)"),
    (Limits(max_batch=32768), {"batch": 40000}, "batch 40000 (takes up to 32768)"),
    (Limits(), {"query_heads": 8, "key_heads": 3}, "8 query heads for 3 key heads (takes multiples)"),
    (Limits(accepts_mask=False), {"mask": "bool"}, "a bool mask (takes none)"),
    (Limits(accepts_mask=False), {"mask": "additive"}, "an additive mask (takes none)"),
    (Limits(accepts_grad=False), {"needs_grad": True}, "gradients (inference only)"),
]


@pytest.mark.parametrize(("limits", "found", "phrase"), PHRASES, ids=[p[2] for p in PHRASES])
def test_refusal_names_what_was_found_and_what_is_allowed(limits, found, phrase):
    assert limits.refusal(call()) is None  # nothing but what was found is in the way
    assert limits.refusal(call(**found)) == phrase


@pytest.mark.parametrize(
    ("limits", "found", "expected"),
    [
        (Limits(min_compute_capability=(8, 0)), (7, 5), "capability 8.0 or newer, found 7.5"),
        (Limits(max_compute_capability=(9, 0)), (12, 0), "up to compute capability 9.0, found 12.0"),
        (Limits(min_compute_capability=(8, 0), max_compute_capability=(9, 0)), (8, 0), None),
        (Limits(min_compute_capability=(8, 0), max_compute_capability=(9, 0)), (9, 0), None),
        (Limits(), (3, 0), None),
    ],
)
def test_compute_capability(limits, found, expected):
    refusal = limits.capability_refusal(found)
    assert refusal is None if expected is None else expected in refusal


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
