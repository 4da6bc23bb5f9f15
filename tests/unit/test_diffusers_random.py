"""Random lives of pipelines, see ``random_lives.py``: copied, shared, moved and patched by others while optimized."""

from __future__ import annotations

import pytest
from cases import often
from random_lives import Life


@pytest.mark.parametrize("seed", often(range(3), range(40)))
def test_a_random_life(seed: int) -> None:
    life = Life(seed).live()
    assert not life.wrong, "\n".join((life.name, *life.events))
