"""What holds for any matching, whatever tokens were merged."""

from __future__ import annotations

import math
import random

import numpy
import pytest
import torch
from paceline.optimizers.token_merging.tomesd import Matching, choices, match, partition
from torch import Tensor


def random_tokens(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def slot_of_token(matching: Matching) -> Tensor:
    """Return the slot that holds each token, ``[batch, tokens]``."""
    batch, slots = matching.starts.shape
    return matching.row_of_token - torch.arange(batch, device=matching.starts.device)[:, None] * slots


def counts(matching: Matching) -> Tensor:
    """Return how many tokens each slot holds, ``[batch, slots]``."""
    slots = slot_of_token(matching)
    return torch.zeros_like(matching.starts).scatter_add_(1, slots, torch.ones_like(slots))


def merged_tokens(matching: Matching, destinations: Tensor) -> list[list[int]]:
    """Return the tokens of each picture that were merged into another, ascending."""
    alone = counts(matching).gather(1, slot_of_token(matching)) == 1
    alone[:, destinations] = True
    return [(~each).nonzero()[:, 0].tolist() for each in alone]


HALF = [torch.float16, torch.bfloat16]


def random_offsets(height, width, sx=2, sy=2, step=0, block=0, device="cpu"):
    return choices((height // sy) * (width // sx), sx * sy, step, block, device)


def top_left(height, width, sx=2, sy=2):
    return partition(height, width, sx, sy, None, "cpu")


def random_partition(height, width, sx=2, sy=2, step=0):
    return partition(height, width, sx, sy, random_offsets(height, width, sx, sy, step), "cpu")


@pytest.mark.parametrize(
    ("height", "width", "sx", "sy", "ratio"),
    [(8, 8, 2, 2, 0.0), (8, 8, 1, 1, 0.5), (1, 64, 2, 2, 0.5), (3, 3, 4, 4, 1.0), (4, 4, 2, 2, 0.06)],
)
def test_nothing_to_merge_is_the_identity(height, width, sx, sy, ratio):
    x = random_tokens(2, height * width, 4)
    m = match(x, *top_left(height, width, sx, sy), ratio)
    assert m.kept == m.tokens == height * width
    assert torch.equal(m.reduce(x), x) and torch.equal(m.restore(x), x)


def test_odd_values_do_no_harm():
    x = random_tokens(3, 8 * 8, 6)
    x[0, [0, 5, 7]] = 0
    x[1, 9], x[1, 10] = math.nan, math.inf
    x[2] = math.nan
    m, (destinations, _) = match(x, *top_left(8, 8), 0.5), top_left(8, 8)
    away = merged_tokens(m, destinations)
    assert 5 not in away[0] and 9 not in away[1]
    assert [len(tokens) for tokens in away] == [32] * 3 and counts(m).min() >= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALF])
def test_the_path_for_other_devices_gives_the_same(dtype):
    x = random_tokens(2, 9 * 14, 10, dtype=dtype)
    m = match(x, *random_partition(9, 14), 0.5)
    torch.testing.assert_close(
        m.reduce_by_addition(x), m.reduce(x), rtol=2 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps
    )


@pytest.mark.parametrize("dtype", HALF)
def test_the_mean_of_many_tokens_is_not_lost_in_half_precision(dtype):
    """Adding up 4,095 ones in bfloat16 stops at 256."""
    x = torch.ones(1, 64 * 64, 2, dtype=dtype)
    m = match(x, *top_left(64, 64, 64, 64), 1.0)
    assert m.kept == 1
    assert torch.equal(m.reduce(x), torch.ones(1, 1, 2, dtype=dtype))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
def test_cuda_agrees_with_the_cpu(dtype):
    """Destinations are the same; similarities round differently, so a few sources at the cut may differ."""
    x = random_tokens(2, 64 * 64, 320, dtype=dtype)
    offsets = random_offsets(64, 64, step=torch.tensor(3), device="cuda")
    assert torch.equal(offsets.cpu(), random_offsets(64, 64, step=3))
    destinations, sources = partition(64, 64, 2, 2, offsets, "cuda")
    cpu = match(x, destinations.cpu(), sources.cpu(), 0.5)
    cuda = match(x.cuda(), destinations, sources, 0.5)
    away = (merged_tokens(cpu, destinations.cpu()), merged_tokens(cuda, destinations))
    assert min(len({*a} & {*b}) / len(a) for a, b in zip(*away, strict=True)) > 0.99
    once, again = cuda.reduce(x.cuda()), cuda.reduce(x.cuda())
    assert torch.equal(once, again)
    tolerance = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(once, cuda.reduce_by_addition(x.cuda()), rtol=tolerance, atol=tolerance)
    assert torch.equal(cuda.restore(once)[0, 0], once[0, slot_of_token(cuda)[0, 0]])


def test_choices_never_change():
    """A saved workflow must give the same image in later versions."""
    assert choices(12, 4, step=0, block=0, device="cpu").tolist() == [0, 1, 3, 1, 3, 1, 2, 2, 3, 1, 2, 0]


def test_no_random_stream_is_touched():
    states = torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].copy()
    first = random_offsets(64, 64, step=torch.tensor(2), block=3)
    torch.manual_seed(99)
    assert torch.equal(random_offsets(64, 64, step=2, block=3), first)
    torch.set_rng_state(states[0])
    random_partition(64, 64)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert (numpy.random.get_state()[1] == states[2]).all()
