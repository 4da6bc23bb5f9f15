"""Which cases of a test run with every change, and which each night only."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def often(chosen: Container[Any], cases: Iterable[Any]) -> list[Any]:
    """Return ``cases`` for ``parametrize``; those that are not ``chosen`` are ``thorough``."""
    return [case if case in chosen else pytest.param(case, marks=pytest.mark.thorough) for case in cases]
