"""Compile UNet on models of its own, for each test anew."""

import pytest
from comfy_host import checkpoints
from compiled_models import with_model_of_its_own


@pytest.fixture(autouse=True)
def fresh(fresh_compiler):
    """Each test has a compiler of its own."""


@pytest.fixture
def small(studio):
    return with_model_of_its_own(studio, checkpoints.smallest_unet())


@pytest.fixture
def small_baseline(small):
    return small.sample(small.model)


@pytest.fixture
def compiled(studio):
    def apply(model, **settings):
        settings = {"backend": "eager", "scope": "whole_model", **settings}
        return studio.run("PacelineCompileUNet", model=model, **settings)

    return apply
