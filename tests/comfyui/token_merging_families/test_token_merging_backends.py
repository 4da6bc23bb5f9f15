"""Kernels of Set Attention Processor are given the thinned keys and values, whichever node comes first."""

from __future__ import annotations

import pytest
from transformer_calls import HALVES, grid, sample


def lengths(name, model):
    """Sample; return the numbers of queries and keys that the kernel is given."""
    policy = model.get_attachment("paceline").find("attention").policy
    kernel, seen = policy.function, []

    def attention(inputs):
        assert inputs.v.shape[2] == inputs.k.shape[2]
        seen.append((inputs.q.shape[2], inputs.k.shape[2]))
        return kernel(inputs)

    policy.function = attention
    sample(name, model)
    return seen


@pytest.mark.parametrize("name", ["wan", "flux"])
def test_a_kernel_is_given_the_thinned_lengths_in_both_orders(studio, zoo, name):
    text, frames, rows, columns, padding = grid(name)
    whole = text + frames * rows * columns + padding
    thinned = text + frames * (rows // 2 + 1) * (columns // 2 + 1) + padding
    for model in (
        studio.tome(studio.attention(zoo(name), "vanilla"), **HALVES),
        studio.attention(studio.tome(zoo(name), **HALVES), "vanilla"),
    ):
        keys = {given for queries, given in lengths(name, model) if queries == whole}
        assert thinned in keys and whole not in keys
        assert "fallbacks: 0" in studio.report(model)
    assert (whole, whole) in lengths(name, studio.attention(zoo(name), "vanilla"))
