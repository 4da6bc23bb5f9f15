"""Which of the small transformers a test goes through with every change: few, which together have every trait of all.

A trait is a value of a field of a family's `TokenLayout`, or what only the network of the tests is (a video, padded).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields

from comfy_host.transformers import ALL
from paceline.optimizers.families import families
from paceline.optimizers.families.family import TokenLayout

Trait = tuple[str, object]

TIMES = 2
"""How many networks show each trait, where so many have it."""

# What a person reads, the names of the blocks, and what diffusers alone reads.
_NO_TRAITS = {"models", "eligible", "note", "blocks", "in_diffusers", "places"}


def traits(name: str) -> frozenset[Trait]:
    """Return the traits of a small transformer; of names and sizes, how many there are."""
    entry = ALL[name]
    layout = next(family.tokens for family in families() if family.name == entry.family)
    assert layout is not None
    values = {one.name: getattr(layout, one.name) for one in fields(TokenLayout) if one.name not in _NO_TRAITS}
    values |= {"video": entry.frames > 1, "padded": entry.padding > 1, "masked": entry.masked}
    return frozenset((key, len(value) if isinstance(value, tuple) else value) for key, value in values.items())


def covering(names: Iterable[str], times: int = TIMES) -> list[str]:
    """Return few of ``names``, in their order, so that ``times`` of them have each trait, or all that have it.

    Those of newer ComfyUIs come on top: where there is none they are skipped.
    """
    names = list(names)
    having = {name: traits(name) for name in names if not ALL[name].newer}
    counts = Counter(trait for found in having.values() for trait in found)
    wanted = Counter({trait: min(times, count) for trait, count in counts.items()})
    chosen: set[str] = set()
    while +wanted:
        best = max(having.keys() - chosen, key=lambda name: (sum(wanted[trait] > 0 for trait in having[name]), name))
        chosen.add(best)
        wanted.subtract(having[best])
    return [name for name in names if name in chosen or ALL[name].newer]
