"""Every optimisation on a small pipeline of every class: alone, all together, and off again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from paceline import (
    Attention,
    Compile,
    FuseQKV,
    Precision,
    QuantizeInt8,
    ScheduleOnCPU,
    TokenMerging,
    optimize,
    restore,
)
from paceline.optimizers.hosts.diffusers.bench.pipelines import PIPELINES
from random_pipelines import WITH_VAE, baseline, differences, distance, picture, small, state_of

# Relative L2 of the picture. These networks have random weights, so nothing averages errors out.
EXACT = 2e-5
SETTINGS: dict[str, tuple[Any, float]] = {
    "plain": (Attention("vanilla"), EXACT),
    "sub_quadratic": (Attention("sub_quadratic"), EXACT),
    "fused": (FuseQKV(), EXACT),
    "schedule": (ScheduleOnCPU(), 0.0),
    "int8": (QuantizeInt8(include=".", rotation="off"), 0.08),
    "weight_only": (QuantizeInt8(mode="weight_only"), 0.03),
    "bf16": (Precision("bfloat16"), 0.08),
    "fewer_keys": (TokenMerging(ratio=0.5, method="kv_downsample"), 0.2),
}


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("kind", SETTINGS)
def test_alone(name: str, kind: str) -> None:
    setting, tolerance = SETTINGS[kind]
    pipeline = small(name)
    picture(pipeline, steps=1)  # diffusers leaves an empty registry of hooks on some models
    before = state_of(pipeline.pipe)
    report = optimize(pipeline.pipe, setting)
    try:
        result = picture(pipeline)
    finally:
        restore(pipeline.pipe)
    print(name, kind, distance(result, baseline(name)))
    assert distance(result, baseline(name)) <= tolerance
    assert not differences(before, state_of(pipeline.pipe))
    assert torch.equal(picture(pipeline), baseline(name))
