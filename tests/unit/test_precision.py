"""Precision without a host: switches of PyTorch's arithmetic, what is chosen, and what a person reads of it."""

from __future__ import annotations

from threading import Barrier, Thread

import pytest
import torch
from paceline.core.activity import Activity
from paceline.core.errors import InvalidSetting, NothingGained
from paceline.optimizers.precision.arithmetic import arithmetic, useless_switch
from paceline.optimizers.precision.policy import PrecisionPolicy, choose_dtype
from paceline.optimizers.precision.settings import PrecisionSettings, processor_dtype

MATMUL = torch.backends.cuda.matmul


def switches():
    return MATMUL.allow_fp16_accumulation, MATMUL.allow_tf32, torch.backends.cudnn.allow_tf32, MATMUL.fp32_precision


@pytest.mark.parametrize("fails", [False, True])
def test_switches_are_put_back(fails):
    before = switches()
    settings = PrecisionSettings(fp16_accumulation=True, tf32=True)
    for _ in range(2):
        try:
            with arithmetic(settings):
                assert switches()[:3] == (True, True, True)
                if fails:
                    raise ValueError
        except ValueError:
            pass
        assert switches() == before


def test_switches_stay_on_until_the_last_of_two_threads_has_left():
    """As the clones of a MODEL for several GPUs do, which ComfyUI runs at once."""
    before, settings = switches(), PrecisionSettings(fp16_accumulation=True, tf32=True)
    both_are_inside, inside = Barrier(2, timeout=60), []

    def first():
        with arithmetic(settings):
            both_are_inside.wait()

    def last():
        with arithmetic(settings):
            both_are_inside.wait()
            thread.join()
            inside.append(switches()[:3])

    thread = Thread(target=first)
    thread.start()
    last()
    assert inside == [(True, True, True)]
    assert switches() == before


@pytest.mark.parametrize(
    ("settings", "device", "dtype", "words"),
    [
        ({"tf32": True}, "cpu", torch.float32, "tf32 is for NVIDIA GPUs"),
        ({"tf32": True}, "cuda", torch.float16, "changes products of fp32 numbers only, .* float16"),
        ({"fp16_accumulation": True}, "cuda", torch.bfloat16, "changes products of fp16 numbers only"),
    ],
)
def test_a_switch_that_would_do_nothing_is_named(settings, device, dtype, words):
    found = useless_switch(PrecisionSettings(**settings), torch.device(device), dtype)
    assert found is not None
    import re

    assert re.search(words, found[0])
    assert "Switch" in found[1]


def test_an_amd_gpu_has_no_sums_in_fp16(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.4")
    found = useless_switch(PrecisionSettings(fp16_accumulation=True), torch.device("cuda"), torch.float16)
    assert found is not None and found[0].endswith("this model computes on ROCm.")


def test_settings():
    assert PrecisionSettings(dtype="bf16").torch_dtype is torch.bfloat16
    assert PrecisionSettings().torch_dtype is None
    assert PrecisionSettings(tf32=True, channels_last=True).extras() == ("channels last", "TF32")


def policy(dtype=torch.bfloat16, storage=None, previous=torch.float32, **more):
    settings = PrecisionSettings(**more.pop("settings", {}))
    return PrecisionPolicy("Model Precision", settings, previous, dtype, previous, storage or dtype, **more)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (policy(), ("computes in bf16 instead of fp32", "weights in bf16")),
        (
            policy(torch.float32, torch.float16, torch.float16),
            ("computes in fp32 instead of fp16", "weights in fp16, cast at each use"),
        ),
        (policy(torch.float32, settings={"channels_last": True}), ("computes in fp32", "channels last")),
        (policy(kept=3), ("computes in bf16 instead of fp32", "weights in bf16", "3 weights stay in fp32")),
    ],
)
def test_what_a_network_computes_in_is_said(made, words):
    assert made.clauses() == words
    found = made.summarize(Activity(used={"model": 2}))
    assert (found.state, found.headline) == ("active", f"active in 2 model calls: {words[0]}")
    assert (found.counts, found.details) == ({"calls": 2}, words[1:])
    assert made.summarize(Activity()).headline == "not active: the model was not called"


def test_a_dtype_in_which_a_network_does_not_work_is_refused_and_auto_takes_another():
    cpu, works = torch.device("cpu"), (torch.bfloat16, torch.float32)
    with pytest.raises(InvalidSetting, match="dtype is fp16, in which a Lumina2 does not work.*auto or one of: bf16"):
        choose_dtype(PrecisionSettings(dtype="fp16"), "Lumina2", cpu, torch.float32, works)
    assert choose_dtype(PrecisionSettings(), "UNet", cpu, torch.float32) == processor_dtype()
    assert choose_dtype(PrecisionSettings(), "UNet", torch.device("cuda"), torch.float16) == torch.float16
    assert choose_dtype(PrecisionSettings(), "UNet", cpu, torch.float32, (torch.float32,)) == torch.float32


def test_settings_that_change_nothing_are_refused_with_what_would():
    same = policy(torch.float32)
    with pytest.raises(NothingGained, match="computes in fp32 already, which suits cpu best.*another dtype .bf16"):
        same.require_change("UNet", torch.device("cpu"), (torch.bfloat16, torch.float32))
    policy().require_change("UNet", torch.device("cpu"), None)
    policy(torch.float32, settings={"tf32": True}).require_change("UNet", torch.device("cuda"), None)
