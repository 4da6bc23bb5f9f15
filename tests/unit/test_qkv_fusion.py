"""Joined weights, fused projections and what is said of them, with torch alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from paceline.optimizers.core.activity import Activity
from paceline.optimizers.qkv_fusion.qkv_policy import QKVFusion
from paceline.optimizers.qkv_fusion.rows import refuse_rows


@pytest.mark.parametrize(
    "tensors",
    [
        [torch.zeros(4, 16), torch.zeros(4, 8)],
        [torch.zeros(4, 16), torch.zeros(4, 16, dtype=torch.float16)],
        [torch.zeros(4, 16), torch.zeros(4, 16, device="meta")],
        [torch.zeros(4, 16), torch.zeros(16, 4).t()],
        [torch.zeros(4, 3), torch.zeros(4, 3)],
        [torch.zeros(3), torch.zeros(3)],
        [torch.zeros(4, 16)] * 2,
    ],
    ids=range(7),
)
def test_weights_that_cannot_be_joined_are_refused_with_the_reason(reads, tensors):
    reads(refuse_rows(tensors))


@pytest.mark.parametrize(
    ("used", "fallbacks"),
    [
        ({}, {}), ({}, {"why": 2}), ({"k and v": 1}, {}), ({"q, k and v": 4, "k and v": 2}, {}),
        ({"q, k and v": 4}, {"why": 1}),
    ],
    ids=range(5),
)  # fmt: skip
def test_the_report_says_in_how_many_calls_and_why_not(reads, used, fallbacks):
    found = QKVFusion([SimpleNamespace(names=("q, k and v",))], ()).summarize(Activity(used=used, fallbacks=fallbacks))
    reads(found.state, found.headline)
    counts = {"q_k_v": used.get("q, k and v", 0), "k_v": used.get("k and v", 0), "fallbacks": sum(fallbacks.values())}
    assert found.counts == counts
    assert list(found.details) == [f"{count} x fallback: {why}" for why, count in fallbacks.items()]
