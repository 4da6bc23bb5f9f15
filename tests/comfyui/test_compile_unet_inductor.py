"""Compile UNet with real code generation, on the smallest UNet there is, and what it keeps for the next start."""

from __future__ import annotations

import shutil
import sys

import model_changes as changes
import pytest
import torch
from comfy_host import checkpoints, in_process

TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}

needs_compiler = pytest.mark.skipif(
    sys.platform != "win32" and not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler"
)
pytestmark = needs_compiler


@pytest.fixture(scope="module")
def small(studio):
    """A MODEL of one level with two transformer blocks: it compiles in the shortest time."""
    return checkpoints.smallest_unet()


@pytest.fixture(scope="module", autouse=True)
def kept(tmp_path_factory):
    """ComfyUI's user folder for these tests, so that the second one finds what the first one has compiled."""
    import folder_paths

    before = folder_paths.get_user_directory()
    folder = tmp_path_factory.mktemp("user")
    folder_paths.set_user_directory(str(folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
        yield folder
    folder_paths.set_user_directory(before)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def sample(studio, small):
    prompts = [in_process.random_conditioning(small, seed=seed) for seed in (1, 2)]
    return lambda model, **options: studio.sample(model, positive=prompts[0], negative=prompts[1], **options)


def compiled(studio, model, **settings):
    return studio.run("PacelineCompileUNet", model=model, **{"backend": "inductor", **settings})


def restarted():
    """Forget everything that a new process would not know."""
    from torch._inductor.utils import clear_caches

    torch._dynamo.reset()
    clear_caches()
    sys.modules["paceline.optimizers.hosts.comfyui.compilation.network"]._networks.clear()


def state(model):
    technique = model.get_attachment("paceline").find("compile_unet")
    return next(iter(technique._used)).functions[0].state


def test_patches_and_weights_that_change_after_compiling_take_effect(studio, small, sample):
    model = compiled(studio, small)
    for apply in (
        lambda patcher: patcher,
        lambda patcher: studio.tome(patcher),
        lambda patcher: changes.lora_for(patcher),
        lambda patcher: patcher,
    ):
        torch.testing.assert_close(sample(apply(model)), sample(apply(small)), **TOLERANCE)
    assert state(model).graphs == 2
    assert state(model).eager_count == 0
    assert not torch.allclose(sample(studio.tome(small)), sample(small), **TOLERANCE)


def test_a_restart_finds_what_was_compiled(studio, small, sample, kept):
    expected = sample(small)
    restarted()
    sample(compiled(studio, small))
    restarted()
    model = compiled(studio, small)
    torch.testing.assert_close(sample(model), expected, **TOLERANCE)
    assert state(model).cache_hits == state(model).graphs == 1
    assert "1 graph (1 from the cache)" in studio.report(model)
    assert list(kept.glob("__paceline/compiled/*/*/entry.json"))


def test_damaged_code_is_thrown_away_and_compiled_again(studio, small, sample, kept):
    sample(compiled(studio, small))
    restarted()
    damaged = 0
    for file in kept.glob("__paceline/compiled/*/*/inductor/**/*"):
        if file.is_file():
            start = file.read_bytes()[:100]
            file.unlink()  # this process still runs the library: what it has loaded must stay whole
            file.write_bytes(start)
            damaged += 1
    assert damaged
    model = compiled(studio, small)
    expected = sample(small)
    for _ in range(2):
        torch.testing.assert_close(sample(model), expected, **TOLERANCE)
    assert not state(model).fallback
    assert state(model).compiled_calls > 0


def test_cancelling_in_the_middle_of_code_generation(studio, small, sample):
    import threading

    import comfy.model_management

    restarted()
    model = compiled(studio, small, dynamic="true")
    timer = threading.Timer(4.0, comfy.model_management.interrupt_current_processing)
    timer.start()
    with pytest.raises(comfy.model_management.InterruptProcessingException):
        sample(model)
    timer.join()
    assert not state(model).fallback
    torch.testing.assert_close(sample(model), sample(small), **TOLERANCE)
    assert state(model).eager_count == 0
