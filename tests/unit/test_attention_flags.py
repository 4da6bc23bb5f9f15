"""The flags of torch that forced kernels must put back."""

from __future__ import annotations

import threading

import pytest
import torch
from paceline.optimizers.attention.backend import Inputs
from paceline.optimizers.attention.registry import BACKENDS


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
