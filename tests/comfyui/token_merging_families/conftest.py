"""Diffusion transformers that tests of one file share."""

from __future__ import annotations

import pytest
from comfy_host.transformers import ALL, build
from paceline.optimizers.families import find_family


@pytest.fixture(scope="module")
def zoo(studio):
    """Models by name, made once; each has the class that its family names."""
    models = {}

    def get(name):
        if name not in models:
            models[name] = build(name)
            assert find_family(models[name].model.diffusion_model).name == ALL[name].family
        return models[name]

    return get
