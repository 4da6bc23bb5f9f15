"""What happens to an optimized pipeline in its life: twice, moved, reloaded, copied, with errors; and random lives."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import often
from paceline import (
    Attention,
    FuseQKV,
    Precision,
    QuantizeInt8,
    ReuseSteps,
    TokenMerging,
    optimize,
    report,
    restore,
)
from paceline.optimizers.core.errors import BackendUnavailable, InvalidSetting, UnsupportedModel
from peft import LoraConfig
from random_lives import Life
from random_pipelines import baseline, differences, distance, picture, small, state_of

INT8 = QuantizeInt8(include="*")
FEWER = TokenMerging(ratio=0.5, method="kv_downsample")
MERGED = TokenMerging(method="merge", ratio=0.5)


def titles(pipe: Any) -> list[str]:
    return [line.title for line in report(pipe).lines if line.component == "unet"]


def test_context_manager_also_restores_after_an_error() -> None:
    pipeline = small("sd15")
    before = state_of(pipeline.pipe)
    with pytest.raises(ZeroDivisionError), optimize(pipeline.pipe, FEWER, FuseQKV()) as made:
        picture(pipeline)
        raise ZeroDivisionError
    assert "active in" in str(made)
    assert not differences(before, state_of(pipeline.pipe))


def test_an_error_leaves_the_pipeline_as_it_was() -> None:
    pipeline = small("sd15")
    optimize(pipeline.pipe, FuseQKV())
    expected = picture(pipeline)
    with pytest.raises(BackendUnavailable, match="xformers"):
        optimize(pipeline.pipe, INT8, FEWER, Attention("xformers"))
    assert set(titles(pipeline.pipe)) == {"Fuse QKV"}
    assert torch.equal(picture(pipeline), expected)
    restore(pipeline.pipe)
    assert torch.equal(picture(pipeline), baseline("sd15"))


def test_what_cannot_help_is_an_error_that_says_so() -> None:
    pipeline = small("flux")
    with pytest.raises(UnsupportedModel, match="is for UNets .*, and FluxTransformer2DModel has none: Reuse"):
        optimize(pipeline.pipe, FEWER)
    with pytest.raises(InvalidSetting, match="This pipeline has"):
        optimize(pipeline.pipe, FEWER, components=["unet"])
    with pytest.raises(InvalidSetting, match="components names nothing"):
        optimize(pipeline.pipe, FEWER, components=[])
    with pytest.raises(UnsupportedModel, match="can do nothing"):
        optimize(pipeline.pipe, FEWER, components=["vae"])
    with pytest.raises(InvalidSetting, match="of the same kind"):
        optimize(pipeline.pipe, MERGED, FEWER)
    with pytest.raises(InvalidSetting, match="It takes the settings"):
        optimize(pipeline.pipe, "fast")
    with pytest.raises(UnsupportedModel, match="no part that can be optimized"):
        optimize(object(), FEWER)
    assert not report(pipeline.pipe).lines


def test_a_model_on_its_own_keeps_what_its_pipeline_has_given_it() -> None:
    pipeline = small("sd15")
    optimize(pipeline.pipe, ReuseSteps(), components=["unet"])
    with pytest.raises(BackendUnavailable, match="xformers"):
        optimize(pipeline.pipe.unet, Attention("xformers"))
    optimize(pipeline.pipe.unet, FuseQKV())
    assert titles(pipeline.pipe) == ["Fuse QKV", "Reuse Steps"]
    picture(pipeline, steps=15)
    assert " of 16 evaluations computed" in str(report(pipeline.pipe))  # of PNDM


def test_int8_moved_to_another_dtype_and_back() -> None:
    pipeline, plain, dtype = small("sdxl"), small("sdxl"), torch.bfloat16  # torchao knows no float64
    latents = partial(picture, output_type="latent")  # in bf16 a processor takes long to decode
    optimize(pipeline.pipe, INT8)
    for moved in (pipeline, plain):
        latents(moved)
        moved.pipe.to(dtype)
    expected = latents(plain)
    assert expected.dtype == dtype
    assert distance(latents(pipeline), expected) <= 0.1
    assert {tensor.dtype for tensor in pipeline.denoiser.state_dict().values()} == {dtype}
    restore(pipeline.pipe)
    assert torch.equal(latents(pipeline), expected)


def test_precision_of_one_part_alone() -> None:
    unet = small("sd15").denoiser
    generator = torch.Generator().manual_seed(0)
    latents, text = torch.randn(1, 4, 8, 8, generator=generator), torch.randn(1, 77, 80, generator=generator)
    with torch.no_grad():
        expected = unet(latents, 901, text).sample
        with optimize(unet, Precision("bf16")):
            assert unet.dtype == torch.bfloat16
            result = unet(latents, 901, text).sample
    assert result.dtype == torch.float32  # as its caller expects
    assert 0 < distance(result, expected) <= 0.05
    assert unet.dtype == torch.float32


def test_precision_of_a_vae_that_its_pipeline_converts() -> None:
    pipeline = small("sdxl")
    pipeline.pipe.vae.register_to_config(force_upcast=True)
    with optimize(pipeline.pipe, Precision("fp16")), pytest.warns(FutureWarning, match="upcast_vae"):
        assert distance(picture(pipeline), baseline("sdxl")) <= 0.1
    assert torch.equal(picture(pipeline), baseline("sdxl"))


def test_saved_and_loaded(tmp_path: Path) -> None:
    pipeline = small("sd15")
    optimize(pipeline.pipe, FuseQKV(), FEWER, INT8)
    expected = picture(pipeline)
    pipeline.pipe.unet.save_pretrained(tmp_path)  # the weights as they are below the optimizations
    again = small("sd15")
    with torch.no_grad():
        for parameter in again.pipe.unet.parameters():
            parameter.zero_()
    again.pipe.register_modules(unet=type(again.pipe.unet).from_pretrained(tmp_path))
    assert torch.equal(picture(again), baseline("sd15"))
    optimize(again.pipe, FuseQKV(), FEWER, INT8)
    assert torch.equal(picture(again), expected)


def test_what_torch_has_wrapped_since_is_restored() -> None:
    pipeline = small("sd15")
    before = state_of(pipeline.pipe)
    optimize(pipeline.pipe, FuseQKV())
    unet = pipeline.pipe.unet
    pipeline.pipe.unet = torch.compile(unet, backend="eager")
    assert titles(pipeline.pipe) == ["Fuse QKV"]
    restore(pipeline.pipe)
    pipeline.pipe.unet = unet
    del unet._is_torch_compile  # torch's own mark
    assert not differences(before, state_of(pipeline.pipe))


def test_a_pipeline_that_nobody_holds_frees_its_memory() -> None:
    pipeline = small("sd15")
    held = optimize(pipeline.pipe, MERGED, FuseQKV(), Attention("vanilla"), Precision("bf16"))
    picture(pipeline, output_type="latent")
    unet, said = weakref.ref(pipeline.pipe.unet), str(held)
    copied = pickle.loads(pickle.dumps(held))
    del pipeline
    gc.collect()
    assert unet() is None
    assert str(held) == str(copied) == said and "Fuse QKV" in said


@pytest.mark.parametrize("seed", often([0], range(40)))
def test_a_random_life(seed: int) -> None:
    life = Life(seed).live()
    assert not life.wrong, "\n".join((life.name, *life.events))


EXACT = 2e-5
SETTINGS = {"fused": (FuseQKV(), EXACT), "int8": (QuantizeInt8(include="*"), 0.08)}


def add_lora(pipe: Any) -> None:
    """A LoRA with random weights on attention, feed-forward and convolutions, as LCM's is; strong enough to be seen."""
    targets = ["to_q", "to_k", "to_v", "to_out.0", "proj_in", "proj_out", "ff.net.0.proj", "ff.net.2", "conv1"]
    pipe.unet.add_adapter(LoraConfig(r=4, lora_alpha=8, target_modules=targets))
    generator = torch.Generator().manual_seed(5)
    for name, parameter in pipe.unet.named_parameters():
        if ".lora_" in name:
            parameter.data.normal_(generator=generator, std=0.05)


LORA = ("lora ours", "ours lora", "ours lora merge apart", "ours lora merge pipeline", "lora merge ours pipeline")


@pytest.mark.parametrize(
    ("kind", "order"),
    often([("int8", LORA[0]), ("int8", LORA[3]), ("fused", LORA[1])], product(SETTINGS, LORA), several=True),
)
def test_a_lora_is_in_the_picture_before_ours_and_after_merged_or_not(kind: str, order: str) -> None:
    settings, tolerance = SETTINGS[kind]
    plain, pipeline = small("sd15"), small("sd15")
    add_lora(plain.pipe)
    with_lora, unet, tolerance = picture(plain), pipeline.pipe.unet, max(tolerance, 1e-4)
    assert distance(with_lora, baseline("sd15")) > 0.05
    steps: dict[str, Callable[[], Any]] = {
        "lora": lambda: add_lora(pipeline.pipe),
        "ours": lambda: optimize(pipeline.pipe, settings),
        "merge": lambda: unet.fuse_lora(),  # which ours stands in front of
        "apart": lambda: unet.unfuse_lora(),
        "pipeline": lambda: pipeline.pipe.unfuse_lora(),
    }
    done: list[str] = []
    for step in order.split():
        steps[step]()
        done.append(step)
        assert distance(picture(pipeline), with_lora if "lora" in done else baseline("sd15")) <= tolerance
        if step in ("apart", "pipeline"):
            unet.disable_adapters()
            assert distance(picture(pipeline), baseline("sd15")) <= tolerance
            return
    restore(pipeline.pipe)
    assert torch.equal(picture(pipeline), with_lora)


def test_merged_into_weights_of_another_precision_it_stays_when_that_comes_off() -> None:
    plain, pipeline = small("sd15"), small("sd15")
    for one in (plain, pipeline):
        add_lora(one.pipe)
    optimize(pipeline.pipe, Precision("bf16"))
    pipeline.pipe.unet.fuse_lora()
    restore(pipeline.pipe)
    assert distance(picture(pipeline), picture(plain)) <= 0.02
    pipeline.pipe.unet.unfuse_lora()
    pipeline.pipe.unet.disable_adapters()
    assert distance(picture(pipeline), baseline("sd15")) <= 0.02
