"""Compile on diffusers' models: a VAE's decode, blocks one by one, channels last, and what cannot be compiled."""

from __future__ import annotations

import pytest
import torch
from paceline import Compile, optimize, report, restore
from random_pipelines import STEPS, baseline, differences, distance, picture, small, state_of

EAGER = {"backend": "eager", "strict": True}


@pytest.mark.parametrize("channels_last", [False, True])
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
        assert "2 x FluxTransformerBlock and 2 x FluxSingleTransformerBlock" in line.description
        counts = now.lines[0].summary.counts
        assert counts["compiled_calls"] == 4 * STEPS and counts["fallbacks"] == 0
        assert counts["graphs"] < 4  # blocks of one class share their code
    assert not differences(before, state_of(pipeline.pipe))
