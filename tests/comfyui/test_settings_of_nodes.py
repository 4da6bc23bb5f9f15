"""Inputs of nodes and fields of settings have the same defaults and limits: there is one list, in the settings."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from paceline.optimizers.compilation.settings import NetworkSettings
from paceline.optimizers.precision.settings import PrecisionSettings
from paceline.optimizers.quantization.settings import QuantizationSettings
from paceline.optimizers.step_reuse.settings import StepReuseSettings
from paceline.optimizers.token_merging.settings import TokenMergingSettings

SETTINGS: dict[str, tuple[Any, ...]] = {
    "PacelineApplyToMe": (TokenMergingSettings,),
    "PacelineReuseSteps": (StepReuseSettings,),
    "PacelineCompileUNet": (NetworkSettings,),
    "PacelineCompileVAE": (NetworkSettings,),
    "PacelineCompileControlNet": (NetworkSettings,),
    "PacelineQuantizeInt8": (QuantizationSettings,),
    "PacelineModelPrecision": (PrecisionSettings,),
    "PacelineVAEPrecision": (PrecisionSettings,),
}
WITHOUT = {
    *("PacelineOptimizePreset", "PacelineSetAttentionProcessor", "PacelineCompareModels", "PacelineBenchmarkSweep"),
    *("PacelineProfile", "PacelineSaveInt8Model", "PacelineFuseQKV", "PacelineOptimizationReport"),
    "PacelineRemoveOptimizations",
}
NO_INPUT = {
    "scope",  # VAEs and ControlNets are compiled whole
    "alone",  # presets set it
}


def test_every_node_is_in_one_of_the_lists(studio):
    offered = {id for id, node in studio.nodes.items() if not node.define_schema().is_dev_only}
    assert offered == {*SETTINGS, *WITHOUT}


@pytest.mark.parametrize("node", SETTINGS)
def test_input_and_setting_agree(studio, node):
    inputs = {put.id: put for put in studio.nodes[node].define_schema().inputs}
    for field in (field for owner in SETTINGS[node] for field in fields(owner)):
        put = inputs.get(field.name)
        if put is None:
            assert field.name in NO_INPUT, f"{node} has no input for {field.name}"
            continue
        assert (put.default, type(put.default)) == (field.default, type(field.default)), field.name
        if "choices" in field.metadata:
            assert {*put.options} <= {str(choice) for choice in field.metadata["choices"]}, field.name
        if "minimum" in field.metadata:
            assert field.metadata["minimum"] <= put.min < put.max <= field.metadata["maximum"], field.name
