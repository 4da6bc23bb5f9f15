"""Seeds in workflows: the inputs that hold one, and those that come after it."""

from __future__ import annotations

from ...core.settings import LARGEST_SEED

SEEDS = ("seed", "noise_seed")
"""Inputs that hold a seed."""


def later_seed(seed: int, after: int) -> int:
    """Return the seed that comes ``after`` so many; 0 follows the largest."""
    return (seed + after) % (LARGEST_SEED + 1)
