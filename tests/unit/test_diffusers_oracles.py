"""Ours against what diffusers, torchao and tomesd do themselves, on the same modules."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from paceline import Attention, FuseQKV, QuantizeInt8, TokenMerging, optimize, report, restore
from paceline.optimizers.hosts.diffusers.host import host_of
from random_pipelines import distance, picture, small


@pytest.mark.parametrize("name", ["sd15", "sdxl", "ssd1b", "sd3", "flux"])
def test_fused_projections_are_those_of_diffusers(name: str) -> None:
    theirs, ours = small(name), small(name)
    theirs.denoiser.fuse_qkv_projections()
    optimize(ours.pipe, FuseQKV(), components=["unet" if hasattr(ours.pipe, "unet") else "transformer"])
    assert distance(picture(ours), picture(theirs)) <= 1e-6


def test_fused_projections_of_a_vae_are_those_of_diffusers() -> None:
    theirs, ours = small("sd15"), small("sd15")
    theirs.pipe.vae.fuse_qkv_projections()
    optimize(ours.pipe, FuseQKV(), components=["vae"])
    assert torch.equal(picture(ours), picture(theirs))


@pytest.mark.parametrize("name", ["sdxl", "sd3"])
def test_each_weight_has_memory_of_its_own_again_at_the_end(name: str) -> None:
    def pieces() -> int:
        return len({parameter.untyped_storage().data_ptr() for parameter in pipeline.denoiser.parameters()})

    pipeline = small(name)
    memory = sum(parameter.nbytes for parameter in pipeline.denoiser.parameters())
    before, expected = pieces(), picture(pipeline)
    with optimize(pipeline.pipe, FuseQKV(), components=["unet" if name == "sdxl" else "transformer"]):
        picture(pipeline)
        assert pieces() < before
        storages = {p.untyped_storage().data_ptr(): p.untyped_storage() for p in pipeline.denoiser.parameters()}
        assert sum(storage.nbytes() for storage in storages.values()) == memory
    assert pieces() == before
    assert torch.equal(picture(pipeline), expected)


def quantized_by_torchao(unet: Any, names: set[str]) -> None:
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    config = Int8DynamicActivationInt8WeightConfig(set_inductor_config=False)
    quantize_(unet, config, filter_fn=lambda module, name: isinstance(module, torch.nn.Linear) and name in names)


def linears(unet: Any) -> set[str]:
    return {
        name
        for name, part in unet.named_modules()
        if type(part) is torch.nn.Linear and "attentions." in name and "proj" not in name
    }


@pytest.mark.parametrize("fused", [False, True])
def test_int8_by_torchao_is_torchao(fused: bool) -> None:
    settings = QuantizeInt8(include="attentions.", exclude="proj, time", implementation="torchao")
    ours, theirs = small("sdxl"), small("sdxl")
    names = linears(theirs.denoiser)
    with optimize(ours.pipe, settings, *([FuseQKV()] if fused else []), components=["unet"]) as now:
        (description,) = [line.description for line in now.lines if line.title == "Quantize int8"]
        # Joined, self-attention has one product for queries, keys and values, cross-attention one for keys and values.
        joined = sum(2 for name in names if "attn1.to_k" in name) + sum(1 for name in names if "attn2.to_k" in name)
        assert joined > 0
        assert f"{len(names) - fused * joined} of" in description
        result = picture(ours)
    assert distance(result, picture(small("sdxl"))) > 1e-3
    quantized_by_torchao(theirs.denoiser, names)
    assert distance(result, picture(theirs)) <= 1e-5


def test_our_int8_errs_as_much_as_torchao_layer_by_layer() -> None:
    """Not the same bits: its scale is the largest value / 127.5, ours, as ComfyUI's, the largest value / 127."""
    ours, theirs, plain = small("sdxl"), small("sdxl"), small("sdxl")
    names = linears(theirs.denoiser)
    optimize(ours.pipe, QuantizeInt8(include="attentions.", exclude="proj, time", rotation="off"))
    quantized_by_torchao(theirs.denoiser, names)
    host = host_of(ours.denoiser)
    assert host is not None
    for name in sorted(names):
        mine, other, exact = (pipeline.denoiser.get_submodule(name) for pipeline in (ours, theirs, plain))
        tokens = torch.randn(4, 200, exact.in_features, generator=torch.Generator().manual_seed(1))
        with torch.no_grad(), host.layers.on():
            errors = [distance(layer(tokens), exact(tokens)) for layer in (mine, other)]
        assert 0.9 <= errors[0] / errors[1] <= 1.1, (name, errors)
        assert errors[0] <= 0.012


@pytest.mark.parametrize("size", [128, 192])
def test_tomesd_is_the_package_itself(size: int) -> None:
    import tomesd

    options: dict[str, Any] = {"ratio": 0.5, "max_downsample": 1, "use_rand": False}
    theirs, ours = small("sd15"), small("sd15")
    tomesd.apply_patch(theirs.denoiser, **options)
    optimize(ours.pipe, TokenMerging(implementation="tomesd", **options))
    assert torch.equal(picture(ours, size), picture(theirs, size))
    assert "breaks the graph" in str(report(ours.pipe))
    restore(ours.pipe)
    assert torch.equal(picture(ours, size), picture(small("sd15"), size))


def test_the_report_counts_the_blocks_in_which_tomesd_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    import tomesd

    merged, calls = [], []
    match = tomesd.merge.bipartite_soft_matching_random2d

    def counted(*args: Any, **options: Any) -> Any:
        merged.append(args)
        return match(*args, **options)

    monkeypatch.setattr(tomesd.merge, "bipartite_soft_matching_random2d", counted)
    ours = small("sd15")
    ours.denoiser.register_forward_hook(lambda *_: calls.append(1))
    optimize(ours.pipe, TokenMerging(implementation="tomesd", max_downsample=1))
    picture(ours, 64)
    found = re.search(r"active in (\d+) of (\d+)", str(report(ours.pipe)))
    assert found is not None and 0 < int(found[1]) < int(found[2])
    assert int(found[1]) * len(calls) == len(merged)


@pytest.mark.parametrize(("backend", "processor"), [("vanilla", "AttnProcessor"), ("sdpa", "AttnProcessor2_0")])
def test_attention_is_diffusers_own_where_it_has_it(backend: str, processor: str) -> None:
    from diffusers.models import attention_processor

    ours, theirs = small("sd15"), small("sd15")
    optimize(ours.pipe, Attention(backend))
    for part in (theirs.pipe.unet, theirs.pipe.vae):
        part.set_attn_processor(getattr(attention_processor, processor)())
    assert f"diffusers' {processor}" in str(report(ours.pipe))
    assert torch.equal(picture(ours), picture(theirs))


def test_attention_of_the_dispatcher_changes_one_model_only() -> None:
    from diffusers.models.attention_dispatch import _AttentionBackendRegistry

    pipeline, other = small("flux"), small("flux")
    active = _AttentionBackendRegistry.get_active_backend()
    expected = picture(other)
    optimize(pipeline.pipe, Attention("sdpa_math"))
    assert "dispatcher (_native_math)" in str(report(pipeline.pipe))
    assert distance(picture(pipeline), expected) <= 2e-5
    assert _AttentionBackendRegistry.get_active_backend() == active
    assert torch.equal(picture(other), expected)
