"""Settings are checked when they are made, with sentences a user understands."""

from __future__ import annotations

import math

import pytest
from paceline.core.errors import InvalidSetting
from paceline.optimizers.token_merging import TokenMergingSettings

WRONG = {
    "ratio": (-0.01, 1.01, math.nan, math.inf, True, "0.5", None),
    "max_downsample": (0, 3, 16, True, "1", "Auto", None, 2.5),
    "sx": (0, -1, 65, 2.0, True, "2"),
    "sy": (0, -1, 65, 2.0, True, "2"),
    "seed": (-1, 2**64, 1.0, False),
    "use_rand": (0, 1, "yes", None),
    "merge_attn": (1, None),
    "merge_crossattn": (1, None),
    "merge_mlp": (1, None),
    "start_percent": (-0.1, 1.1, math.nan, False),
    "end_percent": (-0.1, 1.1, math.nan, True),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_refused(name, value):
    with pytest.raises(InvalidSetting, match=f"^{name} is .*It must be"):
        TokenMergingSettings(**{name: value})


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
