"""Which layers are quantised: what gains and is near enough, and a reason for each of the others."""

from __future__ import annotations

import pytest
import torch
from paceline.core.errors import InvalidSetting
from paceline.optimizers.quantization.layer_times import Shape, Timing
from paceline.optimizers.quantization.layers import Chooser, Layer
from paceline.optimizers.quantization.settings import THRESHOLDS, QuantizationSettings

CPU = torch.device("cpu")


def gains(speedup, rotated=None):
    """Timings of a machine on which int8 is so many times quicker."""

    def time(shape: Shape) -> Timing:
        return Timing(speedup if not shape.rotation else (rotated or speedup), 1.0)

    return time


def weight(rows=96, columns=64, seed=0):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) / 8


def choose(layer=None, speedup=2.0, rotated=None, tokens=None, values=None, **settings):
    layer = layer or Layer("block.attn1.to_q", 64, 96, 4096, 64 * 96 * 2)
    chooser = Chooser(QuantizationSettings(**settings), gains(speedup, rotated), tokens or {}, CPU)
    return chooser.choose(layer, lambda: weight() if values is None else values)


def test_a_layer_that_gains_and_is_near_is_quantised():
    choice = choose()
    assert choice.weight is not None and choice.weight.rotation == 0 and choice.reason == ""
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


def outliers(factor):
    """Tokens with one channel that is ``factor`` times as large as the others."""
    x = torch.randn(256, 64, generator=torch.Generator().manual_seed(1))
    x[:, 5] *= factor
    return {"block.attn1.to_q": x}


def damped(factor):
    """A trained layer has small weights where its input is large."""
    values = weight()
    values[:, 5] /= factor
    return values


@pytest.mark.parametrize("rotation", ["off", "auto"])
@pytest.mark.parametrize(("preset", "limit"), [("quality", "1.2%"), ("balanced", "2.0%"), ("speed", "5.0%")])
def test_an_outlier_that_no_rotation_spreads_far_enough_keeps_the_layer(preset, limit, rotation):
    options = {"tokens": outliers(80), "values": damped(80), "preset": preset, "rotation": rotation}
    kept = choose(**options)
    assert kept.weight is None and kept.reason == f"its error would be above {limit}"
    assert kept.error > 0.15


def test_an_outlier_that_dominates_the_output_is_rounded_well():
    loud = choose(tokens=outliers(80))
    assert loud.weight is not None and loud.weight.rotation == 0


def test_rotation_is_taken_when_it_brings_the_error_below_the_limit_and_costs_no_gain():
    options = {"tokens": outliers(6), "values": damped(6), "preset": "quality"}
    off, auto = choose(**options, rotation="off"), choose(**options)
    assert off.weight is None
    assert auto.weight is not None and auto.weight.rotation in (16, 64) and auto.error < off.error
    slow = choose(**options, rotated=1.0)  # int8 with a rotation is as slow as without int8
    assert slow.weight is None and slow.reason == "its error would be above 1.2%"


def test_presets_differ_in_error_and_gain():
    gated = Layer("block.ff.net.2", 64, 96, 4096, 1)  # outputs of GEGLU have long tails
    found = {name: choose(gated, preset=name, rotation="off").weight is not None for name in THRESHOLDS}
    assert found == {"quality": False, "balanced": True, "speed": True}
    assert {name: choose(speedup=1.1, preset=name).weight is not None for name in THRESHOLDS} == {
        "quality": False, "balanced": False, "speed": True,
    }  # fmt: skip


def test_weight_only_takes_all_but_the_protected_and_needs_no_timing():
    chooser = Chooser(QuantizationSettings(mode="weight_only"), None, {}, CPU)
    few, last = Layer("emb", 64, 96, 2, 1), Layer("out", 64, 96, 4096, 1, "it is last")
    choice = chooser.choose(few, weight)
    assert choice.weight is not None and choice.error < choose().error
    assert chooser.choose(last, weight).weight is None


@pytest.mark.parametrize("settings", [{"preset": "x"}, {"mode": "x"}, {"rotation": "x"}, {"device": "x"}])
def test_settings_that_do_not_exist_are_refused(settings):
    with pytest.raises(InvalidSetting, match=f"{next(iter(settings))} is '"):
        QuantizationSettings(**settings)
