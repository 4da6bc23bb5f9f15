"""Our matching against tomesd 0.1.3, the reference implementation, for the same destinations."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from needs import package
from paceline.optimizers.token_merging.grid import partition_tokens, random_offsets
from paceline.optimizers.token_merging.merging import match, merge, unmerge

tomesd_merge = package("tomesd.merge")

RATIOS = st.one_of(st.sampled_from([0.0, 0.25, 0.5, 0.75, 0.9, 1.0]), st.floats(0.0, 1.0))


@st.composite
def problems(draw):
    """Sizes that hold at least one full cell: with none tomesd fails, and we merge nothing."""
    sx, sy = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    return {
        "height": draw(st.integers(sy, 19)),
        "width": draw(st.integers(sx, 19)),
        "sx": sx,
        "sy": sy,
        "batch": draw(st.integers(1, 8)),
        "channels": draw(st.integers(2, 48)),
        "ratio": draw(RATIOS),
        "seed": draw(st.integers(0, 2**32 - 1)),
    }


def tomesd(metric, height, width, sx, sy, ratio, offsets=None):
    """Let tomesd match, with its top-left destinations or with those at ``offsets``."""
    removed = int(metric.shape[1] * ratio)  # as tomesd.patch.compute_merge
    if offsets is None:
        return tomesd_merge.bipartite_soft_matching_random2d(metric, width, height, sx, sy, removed, no_rand=True)
    chosen = offsets.view(height // sy, width // sx, 1)
    with mock.patch.object(torch, "randint", lambda *args, **kwargs: chosen):
        return tomesd_merge.bipartite_soft_matching_random2d(
            metric, width, height, sx, sy, removed, generator=torch.Generator()
        )


def run_both(problem, dtype, random):
    """Return merged and unmerged features of tomesd, then ours, for whole-number features."""
    p = problem
    generator = torch.Generator().manual_seed(p["seed"])
    tokens = p["height"] * p["width"]
    metric = torch.randn(p["batch"], tokens, p["channels"], generator=generator, dtype=dtype)
    # Sums of whole numbers are exact in any order, so any difference is a difference of the matching.
    x = torch.randint(-99, 99, (p["batch"], tokens, 5), generator=generator).to(dtype)
    grid = {key: p[key] for key in ("height", "width", "sx", "sy")}
    offsets = random_offsets(**grid, seed=p["seed"]) if random else None
    their_merge, their_unmerge = tomesd(metric, **grid, ratio=p["ratio"], offsets=offsets)
    theirs = their_merge(x)
    matching = match(metric, partition_tokens(**grid, offsets=offsets), p["ratio"])
    ours = merge(x, matching)
    return theirs, their_unmerge(theirs), ours, unmerge(ours, matching)


def rows_sorted(x):
    """Sort each element's tokens: tomesd puts unmerged tokens first, we keep the image's order."""
    return [sorted(map(tuple, element.tolist())) for element in x]


@settings(max_examples=150, deadline=None)
@given(problems(), st.booleans())
def test_same_result_as_tomesd_in_double_precision(problem, random):
    theirs, their_image, ours, our_image = run_both(problem, torch.float64, random)
    assert torch.equal(our_image, their_image)
    assert rows_sorted(ours) == rows_sorted(theirs)


@pytest.mark.parametrize("random", [False, True])
@pytest.mark.parametrize(
    ("height", "width", "sx", "sy", "ratio"),
    [(64, 64, 2, 2, 0.5), (33, 47, 3, 2, 0.75), (48, 32, 4, 4, 0.9), (17, 23, 2, 2, 0.3)],
)
def test_same_result_as_tomesd_at_the_sizes_of_images(height, width, sx, sy, ratio, random):
    problem = {"height": height, "width": width, "sx": sx, "sy": sy, "batch": 2, "channels": 320, "ratio": ratio}
    _, their_image, _, our_image = run_both({**problem, "seed": 3}, torch.float32, random)
    assert torch.equal(our_image, their_image)
