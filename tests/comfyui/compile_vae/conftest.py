"""Compile VAE; a compiler for each test anew."""

from __future__ import annotations

import pytest
from comfy_host import vaes

SETTINGS = {"compile_decoder": True, "compile_encoder": True, "backend": "eager", "mode": "default"}


@pytest.fixture
def vae(studio):
    return vaes.kl()


@pytest.fixture(autouse=True)
def fresh(fresh_compiler):
    """Each test has a compiler of its own."""


@pytest.fixture
def compiled(studio):
    def run(vae, **settings):
        return studio.run("PacelineCompileVAE", vae=vae, **{**SETTINGS, **settings})

    return run


@pytest.fixture
def report(studio):
    return lambda vae: studio.run("PacelineOptimizationReport", vae=vae)
