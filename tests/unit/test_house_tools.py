"""The script that compares two commits: when images count as the same."""

from __future__ import annotations

import torch
from house.digests import digest
from house.same_images import verdict


def test_what_counts_as_the_same():
    case = {"image": "a", "plain": "b", "restored": "b"}
    assert verdict(case, dict(case)) == "same"
    assert verdict(case, None) == verdict(None, case) == "missing"
    assert verdict(case, {**case, "image": "c"}) == "DIFFERENT"
    assert verdict(case, {**case, "plain": "c", "restored": "c"}) == "DIFFERENT without the technique"
    assert verdict(case, {**case, "restored": "c"}) == "NOT RESTORED"
    assert verdict({**case, "graphs": 1}, {**case, "graphs": 2}) == "same; graphs 1 -> 2"


def test_a_digest_sees_every_bit_the_shape_and_the_dtype():
    values = torch.arange(6.0).reshape(2, 3)
    changed = values.clone()
    changed.view(torch.int32)[1, 2] ^= 1
    others = (changed, values.reshape(3, 2), values.double(), values.bfloat16(), -0.0 * values)
    assert len({digest(other) for other in (values, *others)}) == 6
    assert digest(values.t().contiguous().t()) == digest(values)
