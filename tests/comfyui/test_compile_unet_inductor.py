"""Compile UNet with real code generation, on the smallest UNet there is, and what it keeps for the next start."""

import shutil
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from comfy_host import in_process, transformers
from compiled_models import state
from writing import comfyui_writes_to

TOLERANCE = 1e-4
"""Length of the difference from the uncompiled image, as a share of the image's own: rounding."""

needs_compiler = pytest.mark.skipif(
    sys.platform != "win32" and not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler"
)
pytestmark = [needs_compiler, pytest.mark.usefixtures("fresh_compiler")]


@pytest.fixture(scope="module", autouse=True)
def kept(tmp_path_factory):
    """ComfyUI's user folder for these tests, so that the second one finds what the first one has compiled."""
    folder = tmp_path_factory.mktemp("user")
    with comfyui_writes_to(user=folder), pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", "is put back after the tests")
        patch.delenv("TORCHINDUCTOR_CACHE_DIR")
        yield folder


@pytest.fixture
def sample(small):
    return partial(small.sample, steps=4)


def compiled(studio, model):
    """Code for a block takes a quarter of the time of code for the whole network."""
    return studio.run("PacelineCompileUNet", model=model, backend="inductor", scope="repeated_blocks")


def restarted():
    """Forget everything that a new process would not know."""
    from paceline.optimizers.in_comfyui.compilation.comfy_env import node_compiler
    from torch._inductor.utils import clear_caches

    torch._dynamo.reset()
    clear_caches()
    node_compiler.cache_clear()


def difference(found, expected):
    return ((found - expected).norm() / expected.norm()).item()


def test_a_restart_finds_what_was_compiled(studio, small, sample, kept):
    expected = sample(small.model)
    restarted()
    sample(compiled(studio, small.model))
    restarted()
    model = compiled(studio, small.model)
    assert difference(sample(model), expected) < TOLERANCE
    assert state(model).cache_hits == state(model).graphs == 1
    assert "1 graph (1 from the cache)" in studio.report(model)
    assert list(kept.glob("__paceline/compiled/inductor/**/*.so"))


@pytest.mark.thorough
def test_a_restart_throws_damaged_code_away(studio, small, sample, kept):
    expected = sample(small.model)
    restarted()
    sample(compiled(studio, small.model))
    restarted()
    for file in filter(Path.is_file, kept.glob("__paceline/compiled/inductor/**/*")):
        start = file.read_bytes()[:100]
        file.unlink()  # this process still runs the library: what it has loaded must stay whole
        file.write_bytes(start)
    model = compiled(studio, small.model)
    for _ in range(2):
        assert difference(sample(model), expected) < TOLERANCE
    assert not state(model).fallback and not state(model).cache_hits
    assert "not compiled:" not in studio.report(model)


@pytest.mark.thorough
def test_a_transformer_draws_the_same_at_every_size_and_batch(studio):
    """Unless the key of AOTAutograd's cache has the sizes, torch 2.13 takes code of others from it for this one."""
    restarted()
    plain = transformers.build("sd3")
    positive, negative = (transformers.conditioning("sd3", seed=seed) for seed in (1, 2))
    settings = {"backend": "inductor", "scope": "whole_model", "strict": True}
    model = studio.run("PacelineCompileUNet", model=plain, **settings)
    for height, width, batch in ((16, 24, 1), (16, 24, 3), (8, 8, 3), (20, 12, 7)):
        latent = transformers.latent("sd3", height, width, batch)
        drawn = [in_process.sample(one, positive, negative, latent, steps=2, seed=7) for one in (model, plain)]
        assert difference(*drawn) < TOLERANCE, (height, width, batch)
