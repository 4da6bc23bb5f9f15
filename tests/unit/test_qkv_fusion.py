"""Joined weights, fused projections and what is said of them, with torch alone."""

from __future__ import annotations

import pytest
import torch
from paceline.optimizers.core.activity import Activity
from paceline.optimizers.qkv_fusion import FusedProjections, QKVFusion
from torch.nn import Linear, Module

PLAIN = {"in_features": 16, "out_features": 4}


@pytest.mark.parametrize("other", [{"in_features": 8}, {"dtype": torch.float16}, {"device": "meta"}, {"bias": False}])
def test_weights_that_cannot_be_joined_are_refused_with_the_reason(reads, other):
    layers = [Linear(**PLAIN), Linear(**PLAIN), Linear(**PLAIN | other)]
    reads(FusedProjections(Module(), layers, (), None).why_apart())


@pytest.mark.parametrize(("used", "fallbacks"), [(0, {}), (0, {"why": 2}), (4, {}), (4, {"why": 1})], ids=range(4))
def test_the_report_says_in_how_many_calls_and_why_not(reads, used, fallbacks):
    found = QKVFusion(1).summarize(Activity(used={"q, k and v": used} if used else {}, fallbacks=fallbacks))
    reads(found.state, found.headline)
    assert found.counts == {"q_k_v": used, "fallbacks": sum(fallbacks.values())}
    assert list(found.details) == [f"{count} x fallback: {why}" for why, count in fallbacks.items()]
