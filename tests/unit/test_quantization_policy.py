"""Quantize int8 without a host: what a person reads of the layers that were chosen, and of a run."""

from __future__ import annotations

import pytest
import torch
from paceline.core.activity import Activity
from paceline.core.errors import NothingGained
from paceline.optimizers.quantization.kernels import ChunkedIntMM
from paceline.optimizers.quantization.layer_times import Timing
from paceline.optimizers.quantization.layers import Layer, LayerChoice, LayerChoices, choose_layers
from paceline.optimizers.quantization.policy import QuantizationPolicy
from paceline.optimizers.quantization.rounding import quantize_weight
from paceline.optimizers.quantization.settings import QuantizationSettings

CPU = torch.device("cpu")
FOUR_BYTES = 512 * 512 * 4


def layer(name="block.ff.net.2", **more) -> Layer:
    return Layer(name, 512, 512, 768, FOUR_BYTES, **more)


def quantized(speedup=None, error=0.0123, name="block.ff.net.2") -> LayerChoice:
    weight = quantize_weight(torch.randn(512, 512, generator=torch.Generator().manual_seed(0)))
    return LayerChoice(layer(name), weight, error=error, timing=Timing(speedup, 1.0) if speedup else None)


def kept(reason="it embeds or modulates", speedup=None) -> LayerChoice:
    return LayerChoice(layer("time_embed.0"), reason=reason, timing=Timing(speedup, 1.0) if speedup else None)


def policy(*choices: LayerChoice, mode="int8", notes=()) -> QuantizationPolicy:
    kernel = ChunkedIntMM() if mode == "int8" else None
    return QuantizationPolicy(QuantizationSettings(mode=mode), LayerChoices(tuple(choices), kernel, notes))


def test_layers_and_memory_are_said_before_a_run():
    headline, by = policy(quantized(), quantized(name="block.attn1.to_q"), kept()).clauses()
    assert headline.endswith("2 of 3 linear layers in int8")
    assert by.startswith("3.1 MB -> 1.6 MB, kernel: torch._int_mm in chunks")
    assert "computed in full precision" in policy(quantized(), mode="weight_only").clauses()[1]
    assert policy().clauses()[0] == "the file's own int8 layers"


@pytest.mark.parametrize(
    ("speedup", "said"),
    [
        (1.5, "1.50 x in those layers as measured here"),
        (0.5, "slower here than in full precision: 0.50 x in those layers as measured (mode weight_only saves the"),
    ],
)
def test_measured_times_are_said_with_how_they_were_measured(speedup, said):
    made = policy(quantized(speedup))
    assert said in made.clauses()[1]
    assert "the layers were timed without torch.compile, whether it follows or not" in made.details()


def test_each_reason_to_keep_layers_is_counted_and_the_worst_error_named():
    details = policy(quantized(error=0.004), quantized(), kept(), kept(), kept("excluded by name"), notes=("a note",))
    assert details.details() == (
        "a note",
        "kept 2 layers in full precision: it embeds or modulates",
        "kept 1 layer in full precision: excluded by name",
        "largest error of a layer's output: 1.23% (block.ff.net.2)",
    )


@pytest.mark.parametrize(
    ("activity", "state", "headline"),
    [
        (Activity(2, used={"q": 70, "k": 70}), "active", "active in 70 linear layers over 2 model calls"),
        (Activity(1, used={"q": 35}, fallbacks={"x": 5}), "partly", "active in 35 linear layers over 1 model call"),
        (Activity(2, fallbacks={"no kernel": 140}), "inactive", "not active: all its layers fell back"),
        (Activity(2), "inactive", "not active: none of its int8 layers was called"),
    ],
)
def test_a_run_in_words(activity, state, headline):
    found = policy(quantized()).summarize(activity)
    assert (found.state, found.headline) == (state, headline)
    assert found.counts["fallbacks"] == activity.fallback_count
    assert found.details[: len(activity.fallbacks)] == activity.fallback_lines()


def test_the_table_has_every_layer_with_its_decision():
    rows = policy(quantized(1.5), kept(speedup=0.5)).table().splitlines()
    assert rows[0] == "block.ff.net.2: 768 x 512 -> 512; int8, 1.0 MB -> 0.3 MB; error 1.23%; 1.50 x"
    assert rows[1] == "time_embed.0: 768 x 512 -> 512; kept (it embeds or modulates); 0.50 x"


def test_where_no_layer_gains_the_numbers_and_what_to_do_are_said():
    policy(quantized()).require_gain("UNet")
    slow = policy(kept("int8 is not quicker", 0.85), kept(), notes=("timed on one core", "tokens of a run"))
    with pytest.raises(NothingGained) as caught:
        slow.require_gain("UNet")
    said = str(caught.value)
    assert "None of the 2 linear layers of this UNet gains from int8 here: 1 would run at 0.85 x at best, and" in said
    assert "1 stay as they are (it embeds or modulates). Timed on one core." in said
    assert "Choose mode weight_only to save memory instead (about half of 2.1 MB), or name layers with include" in said
    with pytest.raises(NothingGained, match="leave no layer of this UNet to quantise"):
        policy(kept()).require_gain("UNet")


def test_names_that_fit_no_layer_are_said():
    settings = QuantizationSettings(mode="weight_only", include="attn9", exclude="time_embed")
    layers = [(layer("time_embed.0"), lambda: torch.ones(512, 512))]
    found = choose_layers(layers, settings, CPU)
    assert found.notes == ("include names no layer of this model",)
