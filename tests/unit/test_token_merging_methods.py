"""Thinned-out keys and values, presets, and the interface that all methods share."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from paceline.core.errors import InvalidSetting
from paceline.optimizers.token_merging import METHODS, PRESETS, BlockCall, TokenMergingSettings, apply_preset
from paceline.optimizers.token_merging.kv_downsample import KVDownsampling, downsampled_side
from paceline.optimizers.token_merging.merging import Merging
from paceline.optimizers.token_merging.methods import Automatic

SIDES = st.integers(1, 21)
RATIOS = st.sampled_from([0.0, 0.1, 0.5, 0.75, 0.9375, 1.0])


def field(batch, height, width, channels=6, seed=0):
    """Smooth random tokens ``[batch, height * width, channels]``, as pictures are."""
    x = torch.randn(batch, channels, height, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    x = F.avg_pool2d(F.pad(x, (2, 2, 2, 2), mode="replicate"), 5, stride=1)
    return x.flatten(2).transpose(1, 2).contiguous()


def plan(x, height, width, method, ratio, **options):
    chosen = TokenMergingSettings(method=method, ratio=ratio, **options)
    return METHODS[method].plan(x, BlockCall(height, width, ratio, chosen))


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
        assert downsampled_side(side, ratio) == len(places[-1])
    expected = x.view(batch, height, width, -1)[:, places[0]][:, :, places[1]].flatten(1, 2)
    assert torch.equal(KVDownsampling(height, width, ratio).reduce(x), expected)


@pytest.mark.parametrize("name", list(PRESETS))
def test_presets_are_valid_and_keep_what_they_do_not_set(name):
    chosen = TokenMergingSettings(**apply_preset(name, {"seed": 9, "ratio": 0.1, "start_percent": 0.2}))
    assert (chosen.seed, chosen.start_percent) == (9, 0.2)
    assert chosen.ratio != 0.1
    assert apply_preset("custom", {"ratio": 0.1}) == {"ratio": 0.1}
    with pytest.raises(InvalidSetting, match="preset is 'turbo'. It must be one of: custom, quality"):
        apply_preset("turbo", {})


def test_auto_leaves_small_images_alone():
    assert Automatic.for_block(4096, "cpu", other_layers=False) is KVDownsampling
    assert Automatic.for_block(64, "cpu", other_layers=False) is None
    assert Automatic.for_block(1024, "cuda", other_layers=False) is None
    assert Automatic.for_block(64, "cuda", other_layers=True) is Merging


def test_bad_input_is_a_sentence():
    x = field(1, 4, 4)
    with pytest.raises(InvalidSetting, match="There are 16 tokens, but 4 x 5 places"):
        KVDownsampling(4, 5, 0.5).reduce(x)
    with pytest.raises(InvalidSetting, match="kv_downsample, which leaves every query in place"):
        TokenMergingSettings(method="kv_downsample", merge_mlp=True)


def test_the_window_must_not_be_reversed():
    with pytest.raises(InvalidSetting, match="start_percent is 0.6, after end_percent"):
        TokenMergingSettings(start_percent=0.6, end_percent=0.5)


def test_describe_is_one_line():
    text = TokenMergingSettings(method="merge", seed=7, merge_mlp=True, start_percent=0.2).describe()
    assert "\n" not in text and "merge 50% of the tokens" in text
    for part in ("self-attention, feed-forward", "cells 2x2", "seed 7", "max downsample auto", "from 20% to 100%"):
        assert part in text
    text = TokenMergingSettings(use_rand=False, merge_attn=False, max_downsample=2).describe()
    assert "around nothing" in text and "top-left destinations" in text and "sampling" not in text
