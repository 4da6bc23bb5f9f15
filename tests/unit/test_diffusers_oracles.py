"""Ours against what diffusers and torchao do themselves, on the same modules."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from cases import often
from paceline import Attention, Compile, FuseQKV, QuantizeInt8, optimize, report, restore
from paceline.optimizers.core.errors import BackendUnavailable
from random_pipelines import NamedPipeline, distance, picture, small


@pytest.mark.parametrize("name", often(["flux"], ["sdxl", "flux"]))
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


def test_each_weight_has_memory_of_its_own_again_at_the_end() -> None:
    def pieces() -> int:
        return len({parameter.untyped_storage().data_ptr() for parameter in pipeline.denoiser.parameters()})

    pipeline = small("sdxl")
    memory = sum(parameter.nbytes for parameter in pipeline.denoiser.parameters())
    before, expected = pieces(), picture(pipeline)
    with optimize(pipeline.pipe, FuseQKV(), components=["unet"]):
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


@pytest.mark.parametrize("fused", often([True], [False, True]))
def test_int8_is_that_of_torchao(fused: bool) -> None:
    settings = QuantizeInt8(include="attentions.", exclude="proj, time, resnets")
    ours, theirs = small("sdxl"), small("sdxl")
    names = linears(theirs.denoiser)
    with optimize(ours.pipe, settings, *([FuseQKV()] if fused else []), components=["unet"]) as now:
        (line,) = [line for line in now.lines if line.title == "Quantize int8"]
        assert f"{len(names)} of" in line.description and "kernel: torchao" in line.description
        result = picture(ours)
        found = {line.title: line.summary for line in now.lines}
        assert found["Quantize int8"].counts["layers"] == len(names)
        if fused:  # what is in int8 cannot be joined, and is left alone in words
            assert "are of the class Int8Tensor" in str(now) and found["Fuse QKV"].state == "inactive"
    assert distance(result, picture(small("sdxl"))) > 1e-3
    quantized_by_torchao(theirs.denoiser, names)
    assert torch.equal(result, picture(theirs))


def int8_counts(pipeline: NamedPipeline) -> Mapping[str, float]:
    picture(pipeline)
    (line,) = [line for line in report(pipeline.pipe).lines if line.title == "Quantize int8"]
    return line.summary.counts


def test_int8_layers_are_counted_where_they_compute() -> None:
    """Also in blocks that share compiled code, and in none that another pack's cache, for example, leaves out."""
    pipeline, int8 = small("flux"), QuantizeInt8(include="transformer_blocks")
    optimize(pipeline.pipe, int8, components=["transformer"])
    plain = int8_counts(pipeline)
    optimize(pipeline.pipe, int8, Compile(regional=True, backend="eager", strict=True), components=["transformer"])
    assert int8_counts(pipeline) == plain
    (line,) = [line for line in report(pipeline.pipe).lines if line.title == "Compile"]
    assert line.summary.counts["graphs"] < 4
    restore(pipeline.pipe)
    optimize(pipeline.pipe, int8, components=["transformer"])
    block = pipeline.denoiser.transformer_blocks[0]
    inside = sum(type(weight) is not torch.nn.Parameter for weight in block.parameters())
    block.forward = lambda hidden_states, encoder_hidden_states, **_: (encoder_hidden_states, hidden_states)
    assert int8_counts(pipeline)["layers"] == plain["layers"] - inside > 0


def test_the_weights_in_int8_are_a_quarter_and_the_same_parameters_come_back() -> None:
    unet = small("sd15").denoiser
    before = dict(unet.named_parameters())
    values = {name: parameter.detach().clone() for name, parameter in before.items()}
    optimize(unet, QuantizeInt8(include="*"))
    int8 = {n: p for n, p in unet.named_parameters() if p is not before[n]}
    assert len(int8) > 50
    held = sum(part.nbytes for p in int8.values() for part in (p.qdata, p.scale))
    assert held < 0.3 * sum(values[name].nbytes for name in int8)
    assert all(torch.equal(tensor, values[name]) for name, tensor in unet.state_dict().items())
    restore(unet)
    after = dict(unet.named_parameters())
    assert after.keys() == before.keys() and all(after[name] is before[name] for name in before)
    assert all(torch.equal(after[name], values[name]) for name in before)


def test_weights_that_others_have_put_in_stay_and_are_not_counted() -> None:
    pipeline = small("sd15")
    optimize(pipeline.pipe, QuantizeInt8(include="*"))
    name, layer = next((n, m) for n, m in pipeline.denoiser.named_modules() if n.endswith("attn1.to_q"))
    mine = layer.weight = torch.nn.Parameter(torch.zeros(layer.weight.shape))
    picture(pipeline)
    (line,) = [line for line in report(pipeline.pipe).lines if line.title == "Quantize int8"]
    assert line.summary.state == "partly" and "another weight has taken the place" in line.summary.details[0]
    assert not pipeline.denoiser.state_dict()[f"{name}.weight"].any()
    assert pipeline.denoiser.get_submodule(name).weight is mine
    restore(pipeline.pipe)
    assert pipeline.denoiser.get_submodule(name).weight is mine


def test_without_torchao_the_sentence_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao.quantization", None)
    pipeline = small("sd15")
    with pytest.raises(BackendUnavailable, match="needs torchao.*pip install --no-deps torchao"):
        optimize(pipeline.pipe, QuantizeInt8())
    assert not report(pipeline.pipe).lines


@pytest.mark.parametrize(("backend", "processor"), [("vanilla", "AttnProcessor"), ("sdpa", "AttnProcessor2_0")])
def test_attention_gives_the_bits_of_diffusers_own_code(backend: str, processor: str) -> None:
    from diffusers.models import attention_processor

    ours, theirs = small("sd15"), small("sd15")
    optimize(ours.pipe, Attention(backend))
    for part in (theirs.pipe.unet, theirs.pipe.vae):
        part.set_attn_processor(getattr(attention_processor, processor)())
    assert torch.equal(picture(ours), picture(theirs))


def test_attention_of_the_dispatcher_changes_one_model_only() -> None:
    from diffusers.models.attention_dispatch import _AttentionBackendRegistry

    pipeline, other = small("flux"), small("flux")
    active = _AttentionBackendRegistry.get_active_backend()
    expected = picture(other)
    optimize(pipeline.pipe, Attention("sdpa_math"))
    assert distance(picture(pipeline), expected) <= 2e-5
    assert _AttentionBackendRegistry.get_active_backend() == active
    assert torch.equal(picture(other), expected)
