"""Settings of all techniques are checked when they are made, by the limits and choices that their fields hold."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest
from paceline.optimizers.compilation.compile_settings import NetworkSettings
from paceline.optimizers.core.errors import InvalidSetting, require_choice
from paceline.optimizers.precision_policy import PrecisionSettings
from paceline.optimizers.quantization.int8_settings import QuantizationSettings
from paceline.optimizers.step_reuse.reuse_settings import StepReuseSettings
from paceline.optimizers.token_merging.tome_settings import TokenMergingSettings

SETTINGS = (NetworkSettings, PrecisionSettings, QuantizationSettings, StepReuseSettings, TokenMergingSettings)
FIELDS = [(owner, field) for owner in SETTINGS for field in fields(owner)]


def wrong(field):
    """Return values that a field does not take, of its type and of others."""
    if "choices" in field.metadata:
        return ("x", "Auto", 2.5, True, None)
    if isinstance(field.default, bool):
        return (1, "yes", None)
    if "minimum" in field.metadata:
        beyond = (field.metadata["minimum"] - 1, field.metadata["maximum"] + 1)
        return (*beyond, *((1.0,) if isinstance(field.default, int) else (math.nan, math.inf)), True, "1", None)
    return ()


@pytest.mark.parametrize(("owner", "field"), FIELDS, ids=lambda value: getattr(value, "name", None))
def test_a_value_that_is_not_allowed_is_refused_with_what_is(owner, field):
    for value in wrong(field):
        with pytest.raises(InvalidSetting, match=f"^{field.name} is .*It must be"):
            owner(**{field.name: value})
            pytest.fail(f"it took {value!r}")


def test_a_long_value_is_quoted_in_part_and_the_remedy_stays():
    with pytest.raises(InvalidSetting) as found:
        require_choice("method", "x" * 100_000, ("merge", "auto"))
    message = str(found.value)
    assert len(message) < 1500
    assert message.startswith("method is 'xxx")
    assert message.endswith("It must be one of: merge, auto.")
