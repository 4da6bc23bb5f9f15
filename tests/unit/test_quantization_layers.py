"""Which layers are quantised: by name, by what gains and is near enough, with a reason for each, in words."""

from __future__ import annotations

import pytest
import torch
from paceline import QuantizeInt8
from paceline.optimizers.core.errors import InvalidSetting, NothingGained
from paceline.optimizers.quantization.int8_policy import QuantizationPolicy
from paceline.optimizers.quantization.int8_settings import THRESHOLDS, QuantizationSettings
from paceline.optimizers.quantization.layer_choice import (
    Layer,
    LayerChoice,
    LayerChoices,
    choose_layer,
    choose_layers,
    quantize_weight,
)
from paceline.optimizers.quantization.layer_times import Timing

CPU = torch.device("cpu")


def gains(speedup):
    """Timings of a machine on which int8 is so many times quicker."""
    return lambda inputs, outputs: Timing(speedup, 1.0)


def weight(rows=96, columns=64, seed=0):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) / 8


def choose(layer=None, speedup=2.0, **settings):
    layer = layer or Layer("block.attn1.to_q", 64, 96, 64 * 96 * 2)
    return choose_layer(layer, weight, QuantizationSettings(**settings), gains(speedup), CPU)


def test_a_layer_that_gains_and_is_near_is_quantised():
    choice = choose()
    assert choice.weight is not None and choice.reason == ""
    assert 0.002 < choice.error < 0.02
    assert choice.timing == Timing(2.0, 1.0)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"exclude": "to_q"}, "excluded by name"),
        ({"layer": Layer("time_embed.0", 64, 96, 1, "it embeds")}, "it embeds"),
        ({"speedup": 1.1}, "int8 is not quicker for its size"),
        ({"speedup": 0.3}, "int8 is not quicker for its size"),
    ],
)
def test_the_others_say_why(options, reason):
    choice = choose(**options)
    assert choice.weight is None and choice.reason == reason


def test_a_name_overrides_speed_and_protection_overrides_a_name():
    assert choose(speedup=0.3, include="attn1").weight is not None
    assert choose(speedup=0.3, include="attn1", exclude="to_q").weight is None
    assert choose(Layer("final", 64, 96, 1, "it is last"), include="final").weight is None


GATED = Layer("block.ff.net.2", 64, 96, 1)  # outputs of GEGLU have long tails


def test_a_layer_with_too_large_an_error_is_kept():
    kept = choose(GATED, preset="quality")
    assert kept.weight is None and kept.reason == "its error would be above 1.2%" and kept.error > 0.012
    assert choose(GATED, preset="quality", include="ff").weight is not None


def test_without_times_the_error_alone_decides():
    found = {name: choose_layer(GATED, weight, QuantizationSettings(preset=name), None, CPU) for name in THRESHOLDS}
    assert {name: choice.weight is not None for name, choice in found.items()} == {
        "quality": False, "balanced": True, "speed": True,
    }  # fmt: skip
    assert all(choice.timing is None for choice in found.values())


def test_presets_differ_in_error_and_gain():
    found = {name: choose(GATED, preset=name).weight is not None for name in THRESHOLDS}
    assert found == {"quality": False, "balanced": True, "speed": True}
    assert {name: choose(speedup=1.1, preset=name).weight is not None for name in THRESHOLDS} == {
        "quality": False, "balanced": False, "speed": True,
    }  # fmt: skip


def test_weight_only_takes_all_but_the_protected_and_needs_no_timing():
    settings = QuantizationSettings(mode="weight_only")
    any_layer, last = Layer("block", 64, 96, 1), Layer("out", 64, 96, 1, "it is last")
    choice = choose_layer(any_layer, weight, settings, None, CPU)
    assert choice.weight is not None and choice.error < choose().error
    assert choose_layer(last, weight, settings, None, CPU).weight is None


FOUR_BYTES = 512 * 512 * 4


def layer(name="block.ff.net.2", **more) -> Layer:
    return Layer(name, 512, 512, FOUR_BYTES, **more)


def quantized(speedup=None, error=0.0123, name="block.ff.net.2") -> LayerChoice:
    weight = quantize_weight(torch.randn(512, 512, generator=torch.Generator().manual_seed(0)))
    return LayerChoice(layer(name), weight, error=error, timing=Timing(speedup, 1.0) if speedup else None)


def kept(reason="it embeds or modulates", speedup=None) -> LayerChoice:
    return LayerChoice(layer("time_embed.0"), reason=reason, timing=Timing(speedup, 1.0) if speedup else None)


def policy(*choices: LayerChoice, mode="int8", notes=()) -> QuantizationPolicy:
    kernel = "comfy-kitchen" if mode == "int8" else ""
    return QuantizationPolicy(QuantizationSettings(mode=mode), LayerChoices(tuple(choices), kernel, notes))


def test_layers_memory_times_and_reasons_are_said_before_a_run(reads):
    reads(*policy(quantized(), quantized(name="block.attn1.to_q"), kept()).clauses())
    reads(policy(quantized(), mode="weight_only").clauses()[1])
    for speedup in (1.5, 0.5):
        reads(policy(quantized(speedup)).clauses()[1], *policy(quantized(speedup)).details())
    chosen = (quantized(error=0.004), quantized(), kept(), kept(), kept("excluded by name"))
    reads(*policy(*chosen, notes=("a note",)).details())
    reads(policy(quantized(1.5), kept(speedup=0.5)).table())


def test_where_no_layer_gains_the_numbers_and_what_to_do_are_said(reads):
    policy(quantized()).require_gain("UNet")
    slow = policy(kept("int8 is not quicker", 0.85), kept(), notes=("a note",))
    reads.refused(NothingGained, slow.require_gain, "UNet")
    reads.refused(NothingGained, policy(kept()).require_gain, "UNet")


def test_names_that_fit_no_layer_are_said():
    settings = QuantizationSettings(mode="weight_only", include="attn9", exclude="time_embed")
    layers = [(layer("time_embed.0"), lambda: torch.ones(512, 512))]
    found = choose_layers(layers, settings, CPU)
    assert found.notes == ("include names no layer of this model",)


NAMES = (
    "time_embed.0",
    "input_blocks.1.1.transformer_blocks.0.attn1.to_q",
    "input_blocks.12.1.transformer_blocks.10.attn2.to_k",
    "input_blocks.12.1.transformer_blocks.10.ff.net.0.proj",
    "double_blocks.3.img_attn.qkv",
)


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("", []), (" , ", []), ("*", [0, 1, 2, 3, 4]),
        ("attn", [1, 2, 4]), ("attn2, ff.net", [2, 3]), ("blocks.1.", [1]), ("Attn", []),
        ("*.attn2.*, time_embed*", [0, 2]), ("attn2.*", []), ("*.attn?.to_q", [1]), ("*proj,\n*qkv", [3, 4]),
    ],
)  # fmt: skip
def test_names_and_shell_patterns(text, places):
    settings = QuantizeInt8(include=text, exclude=text)
    assert [place for place, name in enumerate(NAMES) if settings.is_included(name)] == places
    assert [place for place, name in enumerate(NAMES) if settings.is_excluded(name)] == places


@pytest.mark.parametrize("name", ["include", "exclude"])
@pytest.mark.parametrize(
    "text", ["attn2|ff", r"ff\.net", "^time", "attn[12]", "(?!a)", "a+", "a{2}", "out$", "a" * 10_001]
)
def test_regular_expressions_are_refused_with_the_new_form(name, text):
    with pytest.raises(InvalidSetting, match=rf"{name} is '.*not a list of layer names.* \*\.attn2\.\*, time_embed\*"):
        QuantizeInt8(**{name: text})


@pytest.mark.parametrize(
    "part", ["*a", "*?a", "*a*,", "a,", "?", "*", "*.*_*", "*t*o*_*x,", "*" + "?" * 400 + "q"]
)  # fmt: skip
def test_no_text_takes_long(part):
    """The text comes with a workflow, which may come from anybody. Pytest's time limit ends one that takes for ever."""
    settings = QuantizeInt8(exclude=(part * 10_000)[:10_000])
    for place in range(1000):  # a large model has so many layers
        settings.is_excluded(f"input_blocks.1.1.transformer_blocks.{place}.attn1.to_out.0")
