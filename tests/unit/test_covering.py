"""The networks that are gone through with every change have every trait of all of them."""

from __future__ import annotations

from collections import Counter

import pytest
from comfy_host.transformers import ALL, TRANSFORMERS
from families import TIMES, covering, traits
from paceline.optimizers.families import families


@pytest.mark.parametrize("names", [list(TRANSFORMERS), list(ALL)], ids=["pictures and videos", "with sound"])
def test_every_trait_is_there_twice_or_as_often_as_in_all(names):
    every = Counter(trait for name in names for trait in traits(name))
    chosen = Counter(trait for name in covering(names) for trait in traits(name))
    assert {trait: min(TIMES, count) for trait, count in every.items()} == {
        trait: min(TIMES, chosen[trait]) for trait in every
    }
    assert len(covering(names)) <= len(names) / 2


def test_every_family_whose_tokens_can_be_fewer_has_a_network():
    assert {entry.family for entry in ALL.values()} == {one.name for one in families() if one.tokens is not None}
