"""Compile VAE; a compiler for each test anew."""

import pytest
from comfy_host import vaes

SETTINGS = {"compile_decoder": True, "compile_encoder": True, "backend": "eager", "mode": "default"}


@pytest.fixture
def vae(studio):
    """One level, which is traced in half of the time: a picture is as large as its latent."""
    return vaes.kl(levels=1)


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
    return lambda vae: studio.report(vae=vae)
