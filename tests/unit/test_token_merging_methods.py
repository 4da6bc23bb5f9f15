"""Thinned-out keys and values, presets, settings; matching against tomesd 0.1.3."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from needs import package
from paceline.optimizers.core.errors import InvalidSetting
from paceline.optimizers.token_merging.kv_downsample import fewer_keys
from paceline.optimizers.token_merging.tome_settings import PRESETS, TokenMergingSettings, apply_preset
from paceline.optimizers.token_merging.tomesd import choices, match, partition

SIDES = st.integers(1, 21)
RATIOS = st.sampled_from([0.0, 0.1, 0.5, 0.75, 0.9375, 1.0])


def field(batch, height, width, channels=6, seed=0):
    """Smooth random tokens ``[batch, height * width, channels]``, as pictures are."""
    x = torch.randn(batch, channels, height, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    x = F.avg_pool2d(F.pad(x, (2, 2, 2, 2), mode="replicate"), 5, stride=1)
    return x.flatten(2).transpose(1, 2).contiguous()


@settings(max_examples=60, deadline=None)
@given(height=SIDES, width=SIDES, ratio=RATIOS, batch=st.integers(1, 3))
def test_thinning_is_torchs_nearest_grid_with_the_last_row_and_column(height, width, ratio, batch):
    x = field(batch, height, width)
    places = []
    for side in (height, width):
        evenly = max(1, round(side * (1 - ratio) ** 0.5))
        numbers = torch.arange(side, dtype=torch.float64)[None, None]
        grid = F.interpolate(numbers, size=evenly, mode="nearest").long().flatten().tolist()
        places.append(sorted({*grid, side - 1}))
    expected = x.view(batch, height, width, -1)[:, places[0]][:, :, places[1]].flatten(1, 2)
    assert torch.equal(fewer_keys(height, width, ratio, x.device).reduce(x), expected)


@pytest.mark.parametrize("name", list(PRESETS))
def test_presets_are_valid_and_keep_what_they_do_not_set(name):
    chosen = TokenMergingSettings(**apply_preset(name, {"sx": 9, "ratio": 0.1, "use_rand": False}))
    assert (chosen.sx, chosen.use_rand) == (9, False)
    assert chosen.ratio != 0.1
    assert apply_preset("custom", {"ratio": 0.1}) == {"ratio": 0.1}
    with pytest.raises(InvalidSetting, match="preset is 'turbo'. It must be one of: custom, quality"):
        apply_preset("turbo", {})


def test_bad_input_is_a_sentence():
    with pytest.raises(InvalidSetting, match="kv_downsample, which leaves every query in place"):
        TokenMergingSettings(method="kv_downsample", merge_mlp=True)


tomesd_merge = package("tomesd.merge")

REDUCED = st.one_of(st.sampled_from([0.0, 0.25, 0.5, 0.75, 0.9, 1.0]), st.floats(0.0, 1.0))


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
        "ratio": draw(REDUCED),
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
    cells = (p["height"] // p["sy"]) * (p["width"] // p["sx"])
    drawn = choices(cells, p["sx"] * p["sy"], step=p["seed"], block=0, device="cpu")
    offsets = drawn if random else None
    their_merge, their_unmerge = tomesd(metric, **grid, ratio=p["ratio"], offsets=offsets)
    theirs = their_merge(x)
    matching = match(metric, *partition(**grid, offsets=offsets, device="cpu"), p["ratio"])
    ours = matching.reduce(x)
    return theirs, their_unmerge(theirs), ours, matching.restore(ours)


def rows_sorted(x):
    """Sort each element's tokens: tomesd puts unmerged tokens first, we keep the image's order."""
    return [sorted(map(tuple, element.tolist())) for element in x]


@settings(max_examples=150, deadline=None)
@given(problems(), st.booleans())
def test_same_result_as_tomesd_in_double_precision(problem, random):
    theirs, their_image, ours, our_image = run_both(problem, torch.float64, random)
    assert torch.equal(our_image, their_image)
    assert rows_sorted(ours) == rows_sorted(theirs)
