"""What a test needs from the machine: missing at home it is skipped, missing in CI it fails."""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import NoReturn

import pytest


def missing(what: str) -> NoReturn:
    """Skip the test, or the whole file, with a reason; fail where ``CI`` is set: there everything must be tested."""
    if os.environ.get("CI"):
        pytest.fail(f"CI must have everything: {what}")
    pytest.skip(what, allow_module_level=True)


def package(name: str) -> ModuleType:
    """Return an imported module of a package that is not needed to use the pack, but to test it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing(f"{name.split('.')[0]} is not installed: pip install -r tests/requirements.txt ({error})")
