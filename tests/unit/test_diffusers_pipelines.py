"""Every optimization on a small pipeline of every class, and each entry of a part: alone, together, and off again."""

from __future__ import annotations

import inspect
from itertools import product
from typing import Any

import pytest
import torch
from cases import often
from diffusers_host.pipelines import KNOWN
from paceline import (
    Attention,
    Compile,
    FuseQKV,
    Precision,
    QuantizeInt8,
    TokenMerging,
    optimize,
    report,
    restore,
)
from random_pipelines import STEPS, baseline, differences, distance, picture, small, state_of

# Relative L2 of the picture. These networks have random weights, so nothing averages errors out.
EXACT = 2e-5
SETTINGS: dict[str, tuple[Any, float]] = {
    "plain": (Attention("vanilla"), EXACT),
    "sdpa_math": (Attention("sdpa_math"), EXACT),
    "fused": (FuseQKV(), EXACT),
    "int8": (QuantizeInt8(include="*"), 0.08),
    "weight_only": (QuantizeInt8(mode="weight_only"), 0.03),
    "bf16": (Precision("bf16"), 0.1),
    "fewer_keys": (TokenMerging(ratio=0.75, method="kv_downsample", residual="off"), 0.2),
}


# Most code depends on the class of the attention only, and all are tried together on each pipeline. With every change
# each setting is tried on one of these classes.
ONE_OF_EACH = ("sd15", "sdxl", "if-1", "flux", "sd3")
WITHOUT_TOKENS = ("flux", "sd3", "z-image", "if-1", "if-2")  # no UNets, or with a text among the keys
ALONE = [(name, kind) for kind in SETTINGS for name in (ONE_OF_EACH if kind in ("plain", "weight_only") else KNOWN)]
ALONE = [one for one in ALONE if one not in product(WITHOUT_TOKENS, ["fewer_keys"])]
OFTEN = [("sdxl", "bf16"), ("if-1", "fused"), ("sd15", "weight_only")]  # the rest is in all that is tried together


@pytest.mark.parametrize(("name", "kind"), often(OFTEN, ALONE, several=True))
def test_alone(name: str, kind: str) -> None:
    setting, tolerance = SETTINGS[kind]
    pipeline = small(name)
    picture(pipeline, steps=1)  # diffusers leaves an empty registry of hooks on some models
    before = state_of(pipeline.pipe)
    optimize(pipeline.pipe, setting)
    try:
        result = picture(pipeline)
    finally:
        restore(pipeline.pipe)
    assert distance(result, baseline(name)) <= tolerance
    assert not differences(before, state_of(pipeline.pipe))
    assert torch.equal(picture(pipeline), baseline(name))


COMPILED = Compile(backend="eager", fullgraph=True, strict=True)
TOGETHER = (
    Attention("sdpa_math"),
    FuseQKV(),
    QuantizeInt8(include="*", exclude="to_q, to_k, to_v, q_proj, k_proj, v_proj"),  # which are fused
    TokenMerging(ratio=0.75, method="kv_downsample", residual="off"),
)


def apply_all(name: str, *settings: Any) -> None:
    """Everything is active, the picture is near the plain one, and nothing stays behind."""
    pipeline = small(name)
    if name in WITHOUT_TOKENS:
        settings = tuple(one for one in settings if not isinstance(one, TokenMerging))
    picture(pipeline, steps=1)
    before = state_of(pipeline.pipe)
    with optimize(pipeline.pipe, *settings) as report:
        result = picture(pipeline)
        lines = [line for line in report.lines if line.component in ("unet", "transformer")]
        assert len(lines) == len(settings), str(report)
        assert {line.summary.state for line in report.lines} <= {"active", "inactive"}, str(report)
        assert {line.summary.state for line in lines} == {"active"}, str(report)
        for line in lines:
            if line.title == "Compile":
                assert (line.summary.counts["graphs"], line.summary.counts["graph_breaks"]) == (1, 0)
        decoded = [line.summary.state for line in report.lines if (line.component, line.title) == ("vae", "Compile")]
        assert decoded == ["active"] * (COMPILED in settings and hasattr(pipeline.pipe, "vae"))
    assert 0 < distance(result, baseline(name)) <= 0.2
    assert not differences(before, state_of(pipeline.pipe))
    assert torch.equal(picture(pipeline), baseline(name))


@pytest.mark.parametrize("name", often(["sd15-controlnet"], KNOWN))
def test_all_together(name: str) -> None:
    apply_all(name, *TOGETHER)


@pytest.mark.slow
@pytest.mark.parametrize("name", often(["sd3"], ["sd15", "flux", "sdxl", "sd3"]))
def test_all_together_in_one_graph(name: str) -> None:
    apply_all(name, *TOGETHER, COMPILED)


def test_the_order_of_settings_and_of_calls_does_not_matter() -> None:
    results = []
    for order in (TOGETHER, TOGETHER[::-1], TOGETHER[3:] + TOGETHER[:3]):
        pipeline = small("sd15")
        optimize(pipeline.pipe, *order)
        results.append(picture(pipeline))
    one_by_one = small("sd15")
    for setting in TOGETHER[2:] + TOGETHER[:2]:
        optimize(one_by_one.pipe, setting)
    results.append(picture(one_by_one))
    for result in results[1:]:
        assert torch.equal(result, results[0])


EAGER = {"backend": "eager", "strict": True}


@pytest.mark.parametrize("channels_last", often([True], [False, True]))
def test_decode_of_a_vae(channels_last: bool) -> None:
    pipeline = small("sd15")
    before = state_of(pipeline.pipe)
    setting = Compile(fullgraph=True, channels_last=channels_last, **EAGER)
    optimize(pipeline.pipe, setting, components=["vae"])
    weight = pipeline.pipe.vae.decoder.conv_in.weight
    assert weight.is_contiguous(memory_format=torch.channels_last) == channels_last
    assert distance(picture(pipeline), baseline("sd15")) <= 2e-5
    (line,) = report(pipeline.pipe).lines
    assert (line.component, line.summary.state) == ("vae", "active")
    assert line.summary.headline.startswith("compiled vae.decode: 1 graph, 0 recompiles")
    assert (line.summary.counts["compiled_calls"], line.summary.counts["graph_breaks"]) == (1, 0)
    restore(pipeline.pipe)
    assert not differences(before, state_of(pipeline.pipe))
    assert torch.equal(picture(pipeline), baseline("sd15"))


def test_blocks_one_by_one() -> None:
    pipeline = small("flux")
    expected = picture(pipeline)
    before = state_of(pipeline.pipe)
    with optimize(pipeline.pipe, Compile(regional=True, **EAGER), components=["transformer"]) as now:
        assert distance(picture(pipeline), expected) <= 2e-5
        (line,) = now.lines
        assert "2 kinds of block, 4 places" in line.description
        counts = now.lines[0].summary.counts
        assert counts["compiled_calls"] == 4 * STEPS and counts["fallbacks"] == 0
        assert counts["graphs"] < 4  # blocks of one class share their code
    assert not differences(before, state_of(pipeline.pipe))


INPUTS = {
    "encode": (1, 3, 64, 64), "tiled_encode": (1, 3, 64, 64), "forward": (1, 3, 64, 64),
    "decode": (1, 4, 8, 8), "tiled_decode": (1, 4, 8, 8),
}  # fmt: skip


def values(result: Any) -> torch.Tensor:
    found = result.latent_dist.mode() if hasattr(result, "latent_dist") else getattr(result, "sample", result)
    assert isinstance(found, torch.Tensor)
    return found


@pytest.mark.parametrize(
    ("entry", "setting"),
    often([("tiled_encode", FuseQKV()), ("decode", Precision("bf16"))],
          product(INPUTS, (FuseQKV(), Precision("bf16"))), several=True),
)  # fmt: skip
def test_each_entry_computes_with_the_weights_of_now(entry: str, setting: Any) -> None:
    ours, plain = small("sd15").pipe.vae, small("sd15").pipe.vae
    given = torch.randn(INPUTS[entry], generator=torch.Generator().manual_seed(0))
    optimize(ours, setting)
    assert inspect.signature(getattr(ours, entry)) == inspect.signature(getattr(plain, entry))
    with torch.no_grad():
        for change in (lambda vae: vae, lambda vae: vae.double(), lambda vae: vae.float()):
            change(ours)
            change(plain)
            tensor = given.to(next(plain.parameters()).dtype)
            expected, result = values(getattr(plain, entry)(tensor)), values(getattr(ours, entry)(tensor))
            assert result.dtype == expected.dtype
            assert distance(result, expected) <= (0.1 if isinstance(setting, Precision) else 2e-5)


def test_layers_called_outside_of_a_call_are_plain() -> None:
    pipeline, plain = small("sd15"), small("sd15")
    before = state_of(pipeline.pipe)
    layer, other = pipeline.pipe.vae.decoder.mid_block, plain.pipe.vae.decoder.mid_block
    optimize(pipeline.pipe, FuseQKV(), Attention("vanilla"))
    picture(pipeline)
    given = torch.randn(1, layer.attentions[0].to_q.in_features, 8, 8, dtype=torch.float64)
    with torch.no_grad():
        assert torch.equal(layer.double()(given), other.double()(given))
    restore(pipeline.pipe)
    layer.float()
    assert not [name for name in differences(before, state_of(pipeline.pipe)) if "attributes" in name]
    assert torch.equal(picture(pipeline), baseline("sd15"))
