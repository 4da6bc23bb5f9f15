"""Every optimization on a small pipeline of every class: alone, all together, and off again."""

from __future__ import annotations

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
    ScheduleOnCPU,
    TokenMerging,
    optimize,
    restore,
)
from random_pipelines import baseline, differences, distance, picture, small, state_of

# Relative L2 of the picture. These networks have random weights, so nothing averages errors out.
EXACT = 2e-5
SETTINGS: dict[str, tuple[Any, float]] = {
    "plain": (Attention("vanilla"), EXACT),
    "sdpa_math": (Attention("sdpa_math"), EXACT),
    "fused": (FuseQKV(), EXACT),
    "schedule": (ScheduleOnCPU(), 0.0),
    "int8": (QuantizeInt8(include="*"), 0.08),
    "weight_only": (QuantizeInt8(mode="weight_only"), 0.03),
    "bf16": (Precision("bf16"), 0.1),
    "fewer_keys": (TokenMerging(ratio=0.75, method="kv_downsample", residual="off"), 0.2),
}


# Most code depends on the class of the attention only, and all are tried together on each pipeline. With every change
# each setting is tried on one of these classes.
ONE_OF_EACH = ("sd15", "sdxl", "if-1", "flux", "sd3")
TRANSFORMERS = ("flux", "sd3")
ALONE = [(name, kind) for kind in SETTINGS for name in (ONE_OF_EACH if kind in ("plain", "weight_only") else KNOWN)]
ALONE = [one for one in ALONE if one not in product(TRANSFORMERS, ["fewer_keys"])]
OFTEN = [(ONE_OF_EACH[row % 5], kind) for row, kind in enumerate(SETTINGS)]


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
    ScheduleOnCPU(),
)


def apply_all(name: str, *settings: Any) -> None:
    """Everything is active, the picture is near the plain one, and nothing stays behind."""
    pipeline = small(name)
    if name in TRANSFORMERS:
        settings = tuple(one for one in settings if not isinstance(one, TokenMerging))
    picture(pipeline, steps=1)
    before = state_of(pipeline.pipe)
    with optimize(pipeline.pipe, *settings) as report:
        result = picture(pipeline)
        lines = [line for line in report.lines if line.component in ("unet", "transformer")]
        assert len(lines) == len(settings) - 1, str(report)  # the schedule is the scheduler's
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


@pytest.mark.parametrize("name", often((*ONE_OF_EACH, "sd15-controlnet"), KNOWN))
def test_all_together(name: str) -> None:
    apply_all(name, *TOGETHER)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["sd15", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("flux", "sdxl"))]
)
def test_all_together_in_one_graph(name: str) -> None:
    apply_all(name, *TOGETHER, COMPILED)


def test_the_order_of_settings_and_of_calls_does_not_matter() -> None:
    results = []
    for order in (TOGETHER, TOGETHER[::-1], TOGETHER[3:] + TOGETHER[:3]):
        pipeline = small("sdxl")
        optimize(pipeline.pipe, *order)
        results.append(picture(pipeline))
    one_by_one = small("sdxl")
    for setting in TOGETHER[2:] + TOGETHER[:2]:
        optimize(one_by_one.pipe, setting)
    results.append(picture(one_by_one))
    for result in results[1:]:
        assert torch.equal(result, results[0])
