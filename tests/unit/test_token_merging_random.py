"""The choice of destinations: where they may be, that they are uniform, and what they depend on."""

from __future__ import annotations

import random

import numpy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from paceline.optimizers.token_merging.grid import choices, partition_tokens, random_offsets


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
