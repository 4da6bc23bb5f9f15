"""Kernels that need a GPU are given the thinned keys and values, whichever node comes first."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from cases import often
from transformer_calls import HALVES, grid, sample


@pytest.fixture
def kernel(monkeypatch):
    """Put a stand-in in the place of a kernel; return the numbers of queries and keys that it is given."""
    from paceline.optimizers.attention import policy, probing
    from paceline.optimizers.attention.registry import get

    def stand_in(name: str) -> list[tuple[int, int]]:
        calls: list[tuple[int, int]] = []

        def attention(inputs: Any) -> torch.Tensor:
            assert inputs.v.shape[2] == inputs.k.shape[2]
            calls.append((inputs.q.shape[2], inputs.k.shape[2]))
            return get("vanilla").load()(inputs)

        anywhere = dataclasses.replace(get("vanilla"), name=name, load=lambda: attention)
        monkeypatch.setattr(policy, "get", lambda asked: anywhere if asked == name else get(asked))
        return calls

    monkeypatch.setattr(probing, "_found", {})
    return stand_in


CASES = [("wan", "sage"), ("flux", "flash"), ("wan", "sdpa_cudnn"), ("wan", "flash"), ("flux", "sage")]


@pytest.mark.parametrize(("name", "backend"), often(CASES[:2], CASES, several=True))
def test_a_kernel_is_given_the_thinned_lengths_in_both_orders(studio, zoo, kernel, name, backend):
    text, frames, rows, columns, padding = grid(name)
    whole = text + frames * rows * columns + padding
    thinned = text + frames * (rows // 2 + 1) * (columns // 2 + 1) + padding
    calls = kernel(backend)
    for model in (
        studio.tome(studio.attention(zoo(name), backend), **HALVES),
        studio.attention(studio.tome(zoo(name), **HALVES), backend),
    ):
        calls.clear()
        sample(name, model)
        keys = {given for queries, given in calls if queries == whole}
        assert thinned in keys and whole not in keys
        assert "fallbacks: 0" in studio.report(model)
    calls.clear()
    sample(name, studio.attention(zoo(name), backend))
    assert (whole, whole) in calls
