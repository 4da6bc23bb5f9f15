"""Temporaries of the chunked backends, measured as tensors, and the flags that forced kernels must put back."""

from __future__ import annotations

import threading

import pytest
import torch
from paceline.optimizers.attention.backend import Inputs
from paceline.optimizers.attention.plain import split, split_chunk, sub_quadratic, sub_quadratic_chunks, vanilla
from paceline.optimizers.attention.registry import BACKENDS
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

MIB = 2**20


class LargestStorage(TorchDispatchMode):
    """Remembers the largest storage that any operation returned, in bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.bytes = max(self.bytes, leaf.untyped_storage().nbytes())
        return out


def largest_temporary(function, *args, mask=None, **bounds) -> int:
    with LargestStorage() as seen:
        function(Inputs(*args, mask=mask), **bounds)
    return seen.bytes


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_temporaries_stay_under_the_bound(dtype, masked):
    q, k, v = (torch.randn(1, 2, 600, 16).to(dtype) for _ in range(3))  # 2.9 MB of fp32 scores
    mask = torch.ones(1, 1, 1, 600, dtype=torch.bool) if masked else None
    assert largest_temporary(vanilla, q, k, v, mask=mask) >= 2 * 600 * 600 * 4
    assert largest_temporary(split, q, k, v, mask=mask, max_bytes=MIB // 4) <= MIB // 4
    assert largest_temporary(sub_quadratic, q, k, v, mask=mask, max_bytes=MIB // 8) <= MIB // 8
    assert largest_temporary(split, q, k, v, mask=mask, max_bytes=MIB) > MIB // 2  # the bound is used, too


def test_sub_quadratic_is_bounded_where_split_cannot_be():
    q, k = torch.randn(1, 64, 2, 8), torch.randn(1, 64, 2000, 8)  # one query for all heads is 512 kB
    assert largest_temporary(split, q, k, k, max_bytes=100_000) >= 512_000
    # The inputs themselves (4 MB) are larger, so this looks at the chunk: 64 heads * 1 query * 64 keys * 4 bytes.
    query_chunk, key_chunk = sub_quadratic_chunks(64, 2, 2000, 4, 100_000)
    assert 64 * query_chunk * key_chunk * 4 <= 100_000


def test_sizes_of_real_models_take_a_sensible_number_of_chunks():
    for heads, tokens, most in ((16, 4096, 8), (20, 4096, 8), (16, 16384, 70), (48, 4608, 20)):
        assert -(-tokens // split_chunk(heads, tokens, tokens, 4, 256 * MIB)) <= most
        query_chunk, key_chunk = sub_quadratic_chunks(heads, tokens, tokens, 4, 64 * MIB)
        assert -(-tokens // query_chunk) * -(-tokens // key_chunk) <= 5 * most


def flags() -> tuple[bool, ...]:
    cuda = torch.backends.cuda
    return (
        cuda.flash_sdp_enabled(),
        cuda.mem_efficient_sdp_enabled(),
        cuda.math_sdp_enabled(),
        cuda.cudnn_sdp_enabled(),
    )


def test_forced_kernels_put_torchs_flags_back_even_after_an_error():
    q, v = torch.randn(1, 1, 4, 8), torch.randn(1, 1, 4, 6)
    torch.backends.cuda.enable_math_sdp(False)
    try:
        before = flags()
        BACKENDS["sdpa_flash"].load()(Inputs(q, q, q))
        assert flags() == before
        with pytest.warns(UserWarning), pytest.raises(RuntimeError):
            BACKENDS["sdpa_flash"].load()(Inputs(q, q, v))
        assert flags() == before == (True, True, False, True)
    finally:
        torch.backends.cuda.enable_math_sdp(True)


def test_threads_with_different_forced_kernels_do_not_leave_each_others_flags_behind():
    before, failures = flags(), []
    q = torch.randn(1, 4, 256, 32)

    def work(name):
        function = BACKENDS[name].load()
        try:
            for _ in range(300):
                function(Inputs(q, q, q))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in ("sdpa_flash", "sdpa_math") * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and flags() == before
