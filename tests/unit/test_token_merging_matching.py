"""What holds for any matching, whatever tokens were merged."""

from __future__ import annotations

import math
import random

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from paceline.optimizers.token_merging import tomesd as implementation
from paceline.optimizers.token_merging.tomesd import Matching, choices, match, partition
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


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


SIZES = st.tuples(st.integers(1, 17), st.integers(1, 17), st.integers(1, 4), st.integers(1, 4))
RATIOS = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0.0, 1.0))
HALF = [torch.float16, torch.bfloat16]


def random_offsets(height, width, sx=2, sy=2, step=0, block=0, device="cpu"):
    return choices((height // sy) * (width // sx), sx * sy, step, block, device)


def top_left(height, width, sx=2, sy=2):
    return partition(height, width, sx, sy, None, "cpu")


def random_partition(height, width, sx=2, sy=2, step=0):
    return partition(height, width, sx, sy, random_offsets(height, width, sx, sy, step), "cpu")


@settings(max_examples=60, deadline=None)
@given(SIZES, st.integers(1, 3), RATIOS, st.integers(0, 999), st.sampled_from([torch.float32, *HALF]))
def test_round_trip(sizes, batch, ratio, seed, dtype):
    tokens = sizes[0] * sizes[1]
    x = random_tokens(batch, tokens, 8, seed=seed, dtype=dtype)
    m = match(x, *random_partition(*sizes, step=seed), ratio)
    merged = m.reduce(x)
    image = m.restore(merged)
    assert image.shape == x.shape and image.dtype == x.dtype
    alone = (counts(m) == 1).gather(1, slot_of_token(m))
    assert torch.equal(image[alone], x[alone])  # bitwise
    for b in range(batch):
        for slot in (counts(m)[b] > 1).nonzero()[:, 0].tolist():
            group = x[b][slot_of_token(m)[b] == slot].double()
            tolerance = torch.finfo(dtype).eps * float(group.abs().max())
            assert (merged[b, slot].double() - group.mean(0)).abs().max() <= tolerance
    assert torch.equal(m.reduce(image)[counts(m) == 1], merged[counts(m) == 1])


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


class Calls(TorchDispatchMode):
    """Notes the operators that run, with the shapes of the tensors they are given."""

    def __init__(self):
        super().__init__()
        self.shapes = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        self.shapes.setdefault(name, []).append([tuple(a.shape) for a in args if isinstance(a, torch.Tensor)])
        return function(*args, **(kwargs or {}))


def test_similarities_are_computed_in_chunks_on_a_cpu_and_in_one_where_a_graph_would_be_unrolled():
    x, parts = random_tokens(1, 64 * 64, 8), top_left(64, 64)  # 3072 sources, 1024 destinations
    with Calls() as calls:
        match(x, *parts, 0.5)
    assert [shapes[0] for shapes in calls.shapes["bmm"]] == [(1, 1024, 8)] * 3
    products = []

    def backend(graph, inputs):
        products.extend(node for node in graph.graph.nodes if "bmm" in str(node.target))
        return graph

    torch._dynamo.reset()
    torch.compile(match, backend=backend, fullgraph=True)(x, *parts, 0.5)
    torch._dynamo.reset()
    assert len(products) == 1
    # As many as documented: 4 MiB and 128 MiB of float32.
    assert (4 * implementation.CPU_SCORES, 4 * implementation.DEVICE_SCORES) == (4 * 2**20, 128 * 2**20)


def lowbias32(word: int) -> int:
    """Chris Wellons' function, as published, on unsigned 32-bit words."""
    word ^= word >> 16
    word = word * 0x7FEB352D % 2**32
    word ^= word >> 15
    word = word * 0x846CA68B % 2**32
    return word ^ word >> 16


def test_choices_never_change():
    """A saved workflow must give the same image in later versions."""
    assert choices(12, 4, step=0, block=0, device="cpu").tolist() == [0, 1, 3, 1, 3, 1, 2, 2, 3, 1, 2, 0]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 200), st.integers(1, 4096))
def test_choices_are_lowbias32_of_block_step_and_cell(step, block, options):
    key = 0
    for word in (block, step):
        key = lowbias32(key ^ word)
    expected = [lowbias32(key ^ cell) * options >> 32 for cell in range(8)]
    for form in (step, torch.tensor(step), torch.tensor(step, dtype=torch.int32)):
        assert choices(8, options, form, block, "cpu").tolist() == expected


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


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 9), st.integers(1, 9), st.integers(0, 99), st.booleans())
def test_one_destination_per_full_cell(height, width, sx, sy, step, first):
    parts = top_left(height, width, sx, sy) if first else random_partition(height, width, sx, sy, step)
    destinations, sources = parts
    assert destinations.dtype == sources.dtype == torch.int64
    assert torch.cat([destinations, sources]).sort().values.tolist() == list(range(height * width))
    assert sources.tolist() == sorted(sources.tolist())
    row, column = destinations // width, destinations % width
    cells = [(r, c) for r in range(height // sy) for c in range(width // sx)]
    assert list(zip((row // sy).tolist(), (column // sx).tolist(), strict=True)) == cells
    if first:
        assert not (row % sy).any() and not (column % sx).any()
