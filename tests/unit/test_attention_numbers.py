"""Every backend that runs here against the formula in fp64, over calls generated from its own limits."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from paceline.optimizers.attention.backend import AttentionCall, Backend, Inputs, Limits
from paceline.optimizers.attention.registry import BACKENDS, probe_backend

NEEDS_CUDA = (pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"))
MARKS = {"cpu": (), "cuda": NEEDS_CUDA}
# Every backend on every device that it has limits for.
EVERYWHERE = [
    pytest.param(name, device, marks=marks)
    for name, backend in BACKENDS.items()
    for device, marks in MARKS.items()
    if backend.limits_for(device) is not None
]
ON_CPU = [name for name, backend in BACKENDS.items() if backend.limits_for("cpu") is not None]
HEAD_DIMS = (8, 24, 37, 40, 64, 80, 96, 128, 160, 512)
# Relative L2 error, twice to three times the worst seen over 150 generated calls per backend.
TOLERANCE = {torch.float64: 1e-13, torch.float32: 4e-6, torch.float16: 2.5e-3, torch.bfloat16: 1.8e-2}
TOLERANCE_APPROXIMATE = 0.15
MASKS = ("none", "bool qk", "bool b1qk", "bool bhqk", "bool 111k", "add qk", "add b1qk", "add bhqk", "add 11qk fp32")


def oracle(q, k, v, mask=None, scale=None):
    """The formula, written independently: fp64, one explicit exponential, zeros for a query that may see nothing."""
    q, k, v = q.double(), k.double(), v.double()
    head_of = torch.arange(q.shape[1], device=q.device) // (q.shape[1] // k.shape[1])
    k, v = k[:, head_of], v[:, head_of]
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if mask is not None and mask.dtype == torch.bool:
        scores = torch.where(mask, scores, -math.inf)
    elif mask is not None:
        scores = scores + mask.double()
    peak = scores.amax(-1, keepdim=True)
    exponentials = torch.exp(scores - torch.where(peak == -math.inf, 0.0, peak))
    total = exponentials.sum(-1, keepdim=True)
    return torch.einsum("bhqk,bhkd->bhqd", exponentials / torch.where(total == 0, 1.0, total), v)


def relative_error(out: torch.Tensor, expected: torch.Tensor) -> float:
    return float((out.double() - expected).norm() / expected.norm().clamp_min(1e-30))


def usable(backend: Backend, device: str, dtype: torch.dtype = torch.float16):
    dtypes = (dtype, torch.float32)
    found = next((p for p in (probe_backend(backend, device, d) for d in dtypes) if p.function), None)
    if found is None:
        pytest.skip(f"{backend.name} on {device}: {probe_backend(backend, device, dtype).reason}")
    return found.function


def make_mask(kind: str, b: int, h: int, n: int, m: int, dtype: torch.dtype, seed: torch.Generator):
    if kind == "none":
        return None
    sort, shape, *other = kind.split()
    size = {"qk": (n, m), "b1qk": (b, 1, n, m), "bhqk": (b, h, n, m), "111k": (1, 1, 1, m), "11qk": (1, 1, n, m)}[shape]
    if sort == "bool":
        return torch.rand(size, generator=seed) > 0.3
    return torch.randn(size, generator=seed).to(torch.float32 if other else dtype)


@st.composite
def calls_within(draw, limits: Limits):
    """Tensors of a call that ``limits`` takes."""
    dtype = draw(st.sampled_from(limits.dtypes))
    most = limits.max_head_dim or max(HEAD_DIMS)
    sizes = [d for d in HEAD_DIMS if d <= most and d % limits.head_dim_multiple_of == 0]
    d = draw(st.sampled_from(sizes))
    value_d = draw(st.sampled_from(sizes)) if limits.accepts_other_value_head_dim else d
    b, key_heads = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    h = key_heads * draw(st.integers(1, 3))
    n, step = draw(st.integers(1, 70)), limits.key_tokens_multiple_of
    m = step * draw(st.integers(-(-limits.min_key_tokens // step), 90 // step))
    seed = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    interleaved = draw(st.booleans())  # heads cut from [batch, tokens, heads * head_dim], as models do

    def make(heads, tokens, size):
        if interleaved:
            return torch.randn(b, tokens, heads, size, generator=seed).to(dtype).transpose(1, 2)
        return torch.randn(b, heads, tokens, size, generator=seed).to(dtype)

    q, k, v = make(h, n, d), make(key_heads, m, d), make(key_heads, m, value_d)
    mask = make_mask(draw(st.sampled_from(MASKS if limits.accepts_mask else MASKS[:1])), b, h, n, m, dtype, seed)
    return q, k, v, mask, draw(st.sampled_from((None, 0.05, 0.4)))


@pytest.mark.parametrize(("name", "device"), EVERYWHERE)
def test_generated_calls_match_the_formula(name, device):
    backend = BACKENDS[name]
    function = usable(backend, device)

    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(calls_within(backend.limits_for(device)))
    def check(call):
        q, k, v, mask, scale = call
        assert backend.refusal(AttentionCall.of(q.to(device), k, v, mask)) is None
        on_device = [None if t is None else t.to(device) for t in (q, k, v, mask)]
        grouped = q.shape[1] != k.shape[1]
        out = function(Inputs(*on_device[:3], mask=on_device[3], scale=scale, enable_gqa=grouped))
        assert out.shape == (*q.shape[:3], v.shape[-1]) and out.dtype == q.dtype
        tolerance, expected = (
            TOLERANCE[q.dtype] if backend.exact else TOLERANCE_APPROXIMATE,
            oracle(q, k, v, mask, scale),
        )
        if name == "sdpa" and device == "cuda":  # may be cuDNN's kernel: not zeros for a query that may see nothing
            out[(expected == 0).all(-1).to(device)] = 0
        assert relative_error(out.cpu(), expected) < tolerance

    check()


@pytest.mark.parametrize("kind", ["bool", "additive"])
@pytest.mark.parametrize(("name", "device"), EVERYWHERE)
def test_a_query_that_may_see_nothing_gives_zeros(name, kind, device):
    backend = BACKENDS[name]
    if not backend.limits_for(device).accepts_mask:
        pytest.skip("takes no mask")
    function = usable(backend, device)
    q, k, v = (torch.randn(2, 2, 9, 64, dtype=torch.float32, device=device) for _ in range(3))
    allowed = torch.rand(2, 1, 9, 9, device=device) > 0.4
    allowed[:, :, :, 0] = True
    allowed[0, 0, 3] = allowed[1, 0, 8] = False
    mask = allowed if kind == "bool" else torch.zeros_like(allowed, dtype=q.dtype).masked_fill(~allowed, -math.inf)
    out = function(Inputs(q, k, v, mask=mask))
    assert (out[0, :, 3] == 0).all() and (out[1, :, 8] == 0).all()
    assert relative_error(out.cpu(), oracle(q.cpu(), k.cpu(), v.cpu(), mask.cpu())) < TOLERANCE[torch.float32]


def test_nan_stays_visible():
    q, k, v = (torch.randn(1, 1, 4, 8) for _ in range(3))
    q[0, 0, 2, 0] = math.nan
    out = BACKENDS["vanilla"].load()(Inputs(q, k, v, mask=torch.ones(4, 4, dtype=torch.bool)))
    assert out[0, 0, 2].isnan().all() and not out[0, 0, [0, 1, 3]].isnan().any()


@pytest.mark.parametrize("name", ON_CPU)
def test_half_precision_scores_that_overflow_only_before_scaling(name):
    q = torch.full((1, 1, 3, 64), 40.0, dtype=torch.float16)
    v = torch.randn(1, 1, 3, 64).half()  # q k^T = 102400 > 65504, times the scale 12800
    out = BACKENDS[name].load()(Inputs(q, q.clone(), v))
    assert relative_error(out, oracle(q, q, v)) < TOLERANCE[torch.float16]
