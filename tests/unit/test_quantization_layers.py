"""Which layers are quantised: by name, by what gains and is near enough, with a reason for each, in words."""

from __future__ import annotations

import pytest
import torch
from paceline import QuantizeInt8
from paceline.optimizers.core.errors import InvalidSetting, NothingGained
from paceline.optimizers.quantization.int8_policy import QuantizationPolicy
from paceline.optimizers.quantization.int8_settings import QuantizationSettings
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


def weight(rows=96, columns=64, seed=0):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) / 8


PLAIN, GATED = Layer("block.attn1.to_q", 64, 96, 1), Layer("block.ff.net.2", 64, 96, 1)
"""The outputs of GEGLU, in the second, have long tails."""
LAST, EMBEDS = Layer("final", 64, 96, 1, "it is last"), Layer("time_embed.0", 64, 96, 1, "it embeds")
SLOWER, FAR = "int8 is not quicker for its size", "its error would be above 1.2%"


@pytest.mark.parametrize(
    ("layer", "speedup", "settings", "reason"),
    [
        (PLAIN, 2.0, {}, ""),
        (PLAIN, 2.0, {"exclude": "to_q"}, "excluded by name"),
        (EMBEDS, 2.0, {}, "it embeds"),
        (PLAIN, 1.1, {}, SLOWER),
        (PLAIN, 1.1, {"preset": "quality"}, SLOWER),
        (PLAIN, 1.1, {"preset": "speed"}, ""),
        (PLAIN, 0.3, {"preset": "speed"}, SLOWER),
        (PLAIN, 0.3, {"include": "attn1"}, ""),
        (PLAIN, 0.3, {"include": "attn1", "exclude": "to_q"}, "excluded by name"),
        (LAST, 2.0, {"include": "final"}, "it is last"),
        (GATED, 2.0, {}, ""),
        (GATED, 2.0, {"preset": "speed"}, ""),
        (GATED, 2.0, {"preset": "quality"}, FAR),
        (GATED, 2.0, {"preset": "quality", "include": "ff"}, ""),
        (GATED, None, {"preset": "quality"}, FAR),
        (GATED, None, {}, ""),
        (GATED, None, {"mode": "weight_only"}, ""),
        (LAST, None, {"mode": "weight_only"}, "it is last"),
    ],
)
def test_a_layer_is_quantised_that_gains_and_is_near_and_the_others_say_why(layer, speedup, settings, reason):
    """A name overrides speed and error, and protection a name; without times the error alone decides."""
    times = None if speedup is None else lambda inputs, outputs: Timing(speedup, 1.0)
    choice = choose_layer(layer, weight, QuantizationSettings(**settings), times, CPU)
    assert ((choice.weight is not None), choice.reason) == (not reason, reason)
    if layer is PLAIN and not reason:
        assert 0.002 < choice.error < 0.02 and choice.timing == Timing(speedup, 1.0)


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
