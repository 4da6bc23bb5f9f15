"""Which cases of a test run with every change, and which each night only."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def often(chosen: Container[Any], cases: Iterable[Any], several: bool = False) -> list[Any]:
    """Return ``cases`` for ``parametrize``; those that are not ``chosen`` are ``thorough``.

    ``several``: each case has one value for each of several names.
    """
    return [case if case in chosen else _each_night(*(case if several else (case,))) for case in cases]


def _each_night(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.thorough)
