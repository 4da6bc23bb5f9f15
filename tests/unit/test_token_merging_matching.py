"""What holds for any matching, whatever tokens were merged."""

from __future__ import annotations

import math
import random

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from paceline.core.errors import InvalidSetting
from paceline.optimizers.token_merging import merging as implementation
from paceline.optimizers.token_merging.grid import choices, partition_tokens, positions
from paceline.optimizers.token_merging.merging import Matching, match, merge, unmerge
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


def random_tokens(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def slot_of_token(matching: Matching) -> Tensor:
    """Return the slot that holds each token, ``[batch, tokens]``."""
    batch, slots = matching.starts.shape
    return matching.row_of_token - torch.arange(batch, device=matching.starts.device)[:, None] * slots


def token_of_slot(matching: Matching) -> Tensor:
    """Return the token that each slot stands for, ``[batch, slots]``, ascending."""
    return positions(_is_kept(matching), matching.starts.shape[1])


def merged_tokens(matching: Matching) -> Tensor:
    """Return the tokens that were merged away, ``[batch, merged]``, ascending."""
    return positions(~_is_kept(matching), matching.merged)


def _is_kept(matching: Matching) -> Tensor:
    return matching.kept_as == torch.arange(matching.kept_as.shape[1], device=matching.kept_as.device)


SIZES = st.tuples(st.integers(1, 17), st.integers(1, 17), st.integers(1, 4), st.integers(1, 4))
RATIOS = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0.0, 1.0))
HALF = [torch.float16, torch.bfloat16]


def random_offsets(height, width, sx=2, sy=2, seed=0, step=0, block=0, device="cpu"):
    return choices((height // sy) * (width // sx), sx * sy, seed=seed, step=step, block=block, device=device)


def random_partition(height, width, sx, sy, seed=0):
    offsets = random_offsets(height, width, sx=sx, sy=sy, seed=seed)
    return partition_tokens(height, width, sx=sx, sy=sy, offsets=offsets)


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@settings(max_examples=60, deadline=None)
@given(SIZES, st.integers(1, 3), RATIOS, st.integers(0, 999), st.sampled_from([torch.float32, *HALF]))
def test_round_trip(sizes, batch, ratio, seed, dtype):
    tokens = sizes[0] * sizes[1]
    x = random_tokens(batch, tokens, 8, seed=seed, dtype=dtype)
    m = match(x, random_partition(*sizes, seed=seed), ratio)
    merged = merge(x, m)
    image = unmerge(merged, m)
    assert image.shape == x.shape and image.dtype == x.dtype
    alone = (m.counts == 1).gather(1, slot_of_token(m))
    assert torch.equal(image[alone], x[alone])  # bitwise
    for b in range(batch):
        for slot in (m.counts[b] > 1).nonzero()[:, 0].tolist():
            group = x[b][slot_of_token(m)[b] == slot].double()
            tolerance = torch.finfo(dtype).eps * float(group.abs().max())
            assert (merged[b, slot].double() - group.mean(0)).abs().max() <= tolerance
    assert torch.equal(merge(image, m)[m.counts == 1], merged[m.counts == 1])


@pytest.mark.parametrize(
    ("height", "width", "sx", "sy", "ratio"),
    [(8, 8, 2, 2, 0.0), (8, 8, 1, 1, 0.5), (1, 64, 2, 2, 0.5), (3, 3, 4, 4, 1.0), (4, 4, 2, 2, 0.06)],
)
def test_nothing_to_merge_is_the_identity(height, width, sx, sy, ratio):
    x = random_tokens(2, height * width, 4)
    m = match(x, partition_tokens(height, width, sx=sx, sy=sy), ratio)
    assert merge(x, m) is x
    assert unmerge(x, m) is x
    assert torch.equal(m.counts, torch.ones(2, height * width, dtype=torch.int64))


def test_odd_values_do_no_harm():
    x = random_tokens(3, 8 * 8, 6)
    x[0, [0, 5, 7]] = 0
    x[1, 9], x[1, 10] = math.nan, math.inf
    x[2] = math.nan
    m = match(x, partition_tokens(8, 8), 0.5)
    assert 5 not in merged_tokens(m)[0].tolist() and 9 not in merged_tokens(m)[1].tolist()
    for b in range(3):
        assert merged_tokens(m)[b].unique().numel() == 32
        assert torch.equal(slot_of_token(m)[b].bincount(minlength=32), m.counts[b])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALF])
def test_the_path_for_other_devices_gives_the_same(dtype):
    x = random_tokens(2, 9 * 14, 10, dtype=dtype)
    m = match(x, random_partition(9, 14, 2, 2), 0.5)
    other = implementation._merge_by_addition(x, m)
    torch.testing.assert_close(other, merge(x, m), rtol=2 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", HALF)
def test_the_mean_of_many_tokens_is_not_lost_in_half_precision(dtype):
    """Adding up 4,095 ones in bfloat16 stops at 256."""
    x = torch.ones(1, 64 * 64, 2, dtype=dtype)
    m = match(x, partition_tokens(64, 64, sx=64, sy=64), 1.0)
    assert int(m.counts) == 4096
    assert torch.equal(merge(x, m), torch.ones(1, 1, 2, dtype=dtype))


def test_tokens_of_another_number_are_refused_in_words():
    x = random_tokens(2, 64, 4)
    m = match(x, partition_tokens(8, 8), 0.5)
    with pytest.raises(InvalidSetting, match=r"shape \[1, 64, 4\]"):
        merge(x[:1], m)
    with pytest.raises(InvalidSetting, match=r"matching is for \[2, 32, channels\]"):
        unmerge(x, m)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
def test_cuda_agrees_with_the_cpu(dtype):
    """Destinations are the same; similarities round differently, so a few sources at the cut may differ."""
    x = random_tokens(2, 64 * 64, 320, dtype=dtype)
    offsets = random_offsets(64, 64, seed=7, step=torch.tensor(3), device="cuda")
    assert torch.equal(offsets.cpu(), random_offsets(64, 64, seed=7, step=3))
    cpu = match(x, partition_tokens(64, 64, offsets=offsets.cpu()), 0.5)
    cuda = match(x.cuda(), partition_tokens(64, 64, offsets=offsets, device="cuda"), 0.5)
    same_tokens = [
        len(set(a.tolist()) & set(b.tolist())) / a.numel()
        for a, b in zip(merged_tokens(cpu), merged_tokens(cuda).cpu(), strict=True)
    ]
    assert min(same_tokens) > 0.99
    # Tokens that both merge also go to the same place: where each slot number shifts with the merged tokens before it,
    # the token that a slot stands for does not.
    held_by = [token_of_slot(m).cpu().gather(1, slot_of_token(m).cpu()) for m in (cpu, cuda)]
    assert (held_by[0] == held_by[1]).float().mean() > 0.99
    once, again = merge(x.cuda(), cuda), merge(x.cuda(), cuda)
    assert torch.equal(once, again)
    tolerance = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(once, implementation._merge_by_addition(x.cuda(), cuda), rtol=tolerance, atol=tolerance)
    assert torch.equal(unmerge(once, cuda)[0, 0], once[0, slot_of_token(cuda)[0, 0]])


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
    x, partition = random_tokens(1, 64 * 64, 8), partition_tokens(64, 64)  # 3072 sources, 1024 destinations
    with Calls() as calls:
        match(x, partition, 0.5)
    assert [shapes[0] for shapes in calls.shapes["bmm"]] == [(1, 1024, 8)] * 3
    products = []

    def backend(graph, inputs):
        products.extend(node for node in graph.graph.nodes if "bmm" in str(node.target))
        return graph

    torch._dynamo.reset()
    torch.compile(match, backend=backend, fullgraph=True)(x, partition, 0.5)
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
    """A seed in a saved workflow must give the same image in later versions."""
    first = choices(12, 4, seed=0, step=0, block=0, device="cpu")
    assert first.tolist() == [0, 1, 3, 1, 3, 1, 2, 2, 3, 1, 2, 0]
    last = choices(12, 9, seed=2**64 - 1, step=19, block=15, device="cpu")
    assert last.tolist() == [1, 1, 3, 6, 8, 4, 1, 7, 2, 4, 7, 8]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(0, 10_000), st.integers(0, 200), st.integers(1, 4096))
def test_choices_are_what_the_docstring_says(seed, step, block, options):
    key = 0
    for word in (seed % 2**32, seed >> 32, block, step):
        key = lowbias32(key ^ word)
    expected = [lowbias32(key ^ cell) * options >> 32 for cell in range(8)]
    for form in (step, torch.tensor(step), torch.tensor(step, dtype=torch.int32)):
        assert choices(8, options, seed=seed, step=form, block=block, device="cpu").tolist() == expected


def test_no_random_stream_is_touched():
    states = torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].copy()
    first = random_offsets(64, 64, seed=1, step=torch.tensor(2), block=3)
    torch.manual_seed(99)
    assert torch.equal(random_offsets(64, 64, seed=1, step=2, block=3), first)
    torch.set_rng_state(states[0])
    partition_tokens(64, 64, offsets=random_offsets(64, 64, seed=1))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert (numpy.random.get_state()[1] == states[2]).all()


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 9), st.integers(1, 9), st.integers(0, 99), st.booleans())
def test_one_destination_per_full_cell(height, width, sx, sy, seed, top_left):
    offsets = None if top_left else random_offsets(height, width, sx=sx, sy=sy, seed=seed)
    destinations, sources = partition_tokens(height, width, sx=sx, sy=sy, offsets=offsets)
    assert destinations.dtype == sources.dtype == torch.int64
    assert torch.cat([destinations, sources]).sort().values.tolist() == list(range(height * width))
    assert sources.tolist() == sorted(sources.tolist())
    row, column = destinations // width, destinations % width
    cells = [(r, c) for r in range(height // sy) for c in range(width // sx)]
    assert list(zip((row // sy).tolist(), (column // sx).tolist(), strict=True)) == cells
    if top_left:
        assert not (row % sy).any() and not (column % sx).any()
