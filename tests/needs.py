"""What a test needs from the machine: missing at home it is skipped, missing in CI it fails."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(what: str) -> NoReturn:
    """Skip the test with a reason, or fail it where ``CI`` is set: there everything must be tested."""
    if os.environ.get("CI"):
        pytest.fail(f"CI must have everything: {what}")
    pytest.skip(what)
