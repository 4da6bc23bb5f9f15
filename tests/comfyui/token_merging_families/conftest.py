"""Diffusion transformers that tests of one file share."""

from __future__ import annotations

import pytest
from comfy_host.transformers import build


@pytest.fixture(scope="module")
def zoo(studio):
    """Models by name, made once."""
    models = {}
    return lambda name: models.setdefault(name, build(name)) if name not in models else models[name]
