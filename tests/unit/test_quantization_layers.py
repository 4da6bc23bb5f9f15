"""Which layers are quantised: what gains and is near enough, and a reason for each of the others."""

from __future__ import annotations

import pytest
import torch
from paceline.optimizers.quantization.layer_times import Timing
from paceline.optimizers.quantization.layers import Chooser, Layer
from paceline.optimizers.quantization.settings import THRESHOLDS, QuantizationSettings

CPU = torch.device("cpu")


def gains(speedup):
    """Timings of a machine on which int8 is so many times quicker."""
    return lambda shape: Timing(speedup, 1.0)


def weight(rows=96, columns=64, seed=0):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) / 8


def choose(layer=None, speedup=2.0, **settings):
    layer = layer or Layer("block.attn1.to_q", 64, 96, 4096, 64 * 96 * 2)
    return Chooser(QuantizationSettings(**settings), gains(speedup), CPU).choose(layer, weight)


def test_a_layer_that_gains_and_is_near_is_quantised():
    choice = choose()
    assert choice.weight is not None and choice.reason == ""
    assert 0.002 < choice.error < 0.02
    assert choice.timing == Timing(2.0, 1.0)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"exclude": "to_q"}, "excluded by name"),
        ({"layer": Layer("time_embed.0", 64, 96, 4096, 1, "it embeds")}, "it embeds"),
        ({"layer": Layer("emb", 64, 96, 2, 1)}, "fewer than 17 tokens"),
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
    assert choose(Layer("final", 64, 96, 4096, 1, "it is last"), include="final").weight is None


GATED = Layer("block.ff.net.2", 64, 96, 4096, 1)  # outputs of GEGLU have long tails


def test_a_layer_with_too_large_an_error_is_kept():
    kept = choose(GATED, preset="quality")
    assert kept.weight is None and kept.reason == "its error would be above 1.2%" and kept.error > 0.012
    assert choose(GATED, preset="quality", include="ff").weight is not None


def test_without_times_the_error_alone_decides():
    found = {name: Chooser(QuantizationSettings(preset=name), None, CPU).choose(GATED, weight) for name in THRESHOLDS}
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
    chooser = Chooser(QuantizationSettings(mode="weight_only"), None, CPU)
    few, last = Layer("emb", 64, 96, 2, 1), Layer("out", 64, 96, 4096, 1, "it is last")
    choice = chooser.choose(few, weight)
    assert choice.weight is not None and choice.error < choose().error
    assert chooser.choose(last, weight).weight is None
