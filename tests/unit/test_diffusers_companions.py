"""Beside ours: reuse of features between steps (DeepCache), feed-forward layers in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from paceline import Attention, FuseQKV, TokenMerging, optimize, report
from random_pipelines import distance, picture, small

OURS = (FuseQKV(), Attention("sdpa_math"), TokenMerging(ratio=0.75, method="kv_downsample"))
EXACT = (FuseQKV(), Attention("sdpa_math"))


@contextmanager
def deep_cache(unet: Any, every: int) -> Iterator[list[int]]:
    """Keep what the deep part of a UNet gives, and skip that part in the steps between.

    As DeepCache does (Ma, Fang, Wang: DeepCache, 2023) it replaces the ``forward`` of whole blocks of the UNet.
    """
    blocks = [*unet.down_blocks[1:], unet.mid_block, *unet.up_blocks[:-1]]
    calls = [0, 0]
    kept: dict[int, Any] = {}

    def cached(number: int, forward: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            if number == 0:
                calls[0] += 1
            if (calls[0] - 1) % every and number in kept:
                calls[1] += 1
                return kept[number]
            kept[number] = forward(*args, **kwargs)
            return kept[number]

        return run

    originals = [block.forward for block in blocks if block is not None]
    for number, block in enumerate(block for block in blocks if block is not None):
        block.forward = cached(number, block.forward)
    try:
        yield calls
    finally:
        for block, forward in zip((block for block in blocks if block is not None), originals, strict=True):
            block.forward = forward


@pytest.mark.parametrize("ours_first", [True, False])
def test_features_reused_between_steps(ours_first: bool) -> None:
    plain = small("sd15")
    with deep_cache(plain.denoiser, every=3):
        expected = picture(plain, steps=4)
    assert distance(expected, picture(small("sd15"), steps=4)) > 1e-4
    pipeline = small("sd15")
    if ours_first:
        optimize(pipeline.pipe, *EXACT)
    with deep_cache(pipeline.denoiser, every=3) as calls:
        if not ours_first:
            optimize(pipeline.pipe, *EXACT)
        assert distance(picture(pipeline, steps=4), expected) <= 2e-5
        assert calls[1] > 0
        optimize(pipeline.pipe, *OURS)
        assert distance(picture(pipeline, steps=4), expected) <= 0.2
        states = {line.title: line.summary.state for line in report(pipeline.pipe).lines if line.component == "unet"}
        assert set(states.values()) == {"active"}
