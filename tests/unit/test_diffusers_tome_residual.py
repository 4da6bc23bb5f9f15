"""Apply ToMe on pipelines with ``residual``: closer, said, and dropped whatever ends a run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cases import often
from diffusers_host.pipelines import NamedPipeline
from paceline import Compile, TokenMerging, optimize, report, restore
from paceline.optimizers.in_diffusers.host import host_of
from random_pipelines import distance, picture, small

STEPS = 8
FEWER: Any = {"method": "kv_downsample", "ratio": 0.75, "max_downsample": 2}


def residuals(pipeline: NamedPipeline) -> Any:
    host = host_of(pipeline.denoiser)
    assert host is not None
    return host.techniques[0].policy.kept  # type: ignore[attr-defined]


def said(pipeline: NamedPipeline) -> str:
    return str(report(pipeline.pipe))


@pytest.mark.parametrize("name", often(["sd15"], ["sd15", "sdxl"]))
def test_it_is_much_closer_and_nothing_stays(name: str) -> None:
    pipeline = small(name)
    plain = picture(pipeline, steps=STEPS)
    pictures = []
    for residual in ("off", "auto"):
        with optimize(pipeline.pipe, TokenMerging(residual=residual, **FEWER)):
            pictures.append(picture(pipeline, steps=STEPS))
            text, kept = said(pipeline), residuals(pipeline)
    assert distance(pictures[1], plain) < distance(pictures[0], plain) / 2
    full, added = kept.full, kept.added
    assert full == 3 and added >= 5 and kept.most > 0
    assert f"residual: {full} of {full + added} model calls computed attention both ways" in text
    assert "left out" not in text
    assert not kept._records  # since the last call, before the VAE needs the memory
    assert torch.equal(picture(pipeline, steps=STEPS), plain)


class Stopped(Exception):
    pass


def test_an_error_outside_of_the_network_drops_it() -> None:
    """Where nobody tells it."""
    pipeline = small("sd15")

    def stop(pipe: Any, step: int, timestep: Any, values: dict[str, Any]) -> dict[str, Any]:
        if step == 4:
            raise Stopped
        return values

    optimize(pipeline.pipe, TokenMerging(**FEWER))
    whole = picture(pipeline, steps=STEPS)
    with pytest.raises(Stopped):
        picture(pipeline, steps=STEPS, callback_on_step_end=stop)
    assert torch.equal(picture(pipeline, steps=STEPS), whole)


def test_where_it_cannot_be_kept_the_picture_is_that_without_it() -> None:
    pipeline, found = small("sd15"), []
    compiled = Compile(backend="eager", strict=True, regional=True)
    for residual, beside in (("auto", [compiled]), ("off", [])):  # compiled by eager, the numbers are the same
        with (
            torch.compiler.set_stance("force_eager"),
            optimize(pipeline.pipe, TokenMerging(**FEWER, residual=residual), *beside, components=["unet"]),
        ):
            found.append(picture(pipeline, steps=STEPS))
            left_out = "residual left out: Compile UNet compiles blocks that share" in said(pipeline)
            assert left_out == (residual == "auto")
    assert torch.equal(*found)
    unet = small("sd15").denoiser
    with optimize(unet, TokenMerging(**FEWER)) as now, torch.no_grad():
        unet(torch.randn(1, 4, 16, 16), 1, torch.randn(1, 77, unet.config.cross_attention_dim))
        assert "the begin and the end of a step are unknown here" in str(now)
    restore(unet)
