"""Compile VAE on kinds of VAEs: small ones, videos, what cannot be compiled, and what does not fit."""

from __future__ import annotations

import copy

import pytest
import torch
import torch._dynamo
from comfy_host import vaes
from vae_calls import decode, encode, image, latent


def test_small_vaes_compile(studio, compiled, report):
    taesd = vaes.taesd()
    ours = compiled(taesd)
    torch.testing.assert_close(decode(ours, latent()), decode(taesd, latent()))
    torch.testing.assert_close(encode(ours, image()), encode(taesd, image()))
    assert "fallbacks: 0" in report(ours)


@pytest.mark.thorough
def test_video_vaes_compile_a_few_frames_and_not_the_length_of_the_video(studio, compiled, report):
    wan = vaes.wan()
    ours = compiled(wan)
    for frames in (1, 3, 4):
        samples = latent(4, 6, channels=16, frames=frames)
        found, expected = decode(ours, samples), decode(wan, samples)
        assert found.shape[1] == 4 * frames - 3
        torch.testing.assert_close(found, expected)
    graphs = int(report(ours).split("compiled decode: ")[1].split()[0])
    assert graphs <= 5
    assert "fallbacks: 0" in report(ours)


def test_a_part_that_cannot_be_compiled_does_not_spoil_the_rest_of_the_video(studio, compiled, report):
    @torch._dynamo.register_backend(name="paceline_second_fails")
    def second_fails(graph, inputs):
        second_fails.graphs = getattr(second_fails, "graphs", 0) + 1
        if second_fails.graphs > 1:
            raise RuntimeError("enough")
        return graph

    wan = vaes.wan()
    ours = compiled(wan, backend="paceline_second_fails", strict=False)
    for _ in range(2):
        samples = latent(2, 3, channels=16, frames=2)  # each in a chunk of its own
        assert torch.equal(decode(ours, samples), decode(wan, samples))
    assert "not compiled: all 1 calls ran uncompiled" in report(ours)


def test_vaes_that_cannot_be_compiled_are_refused_by_name(vae, studio, compiled):
    import comfy.sd

    with pytest.raises(Exception, match=r"VAE \(VideoVAE\) cannot be compiled: it works in chunks of frames .*Remove"):
        compiled(vaes.ltx())
    tiling = copy.copy(vae)
    tiling.handles_tiling = True
    with pytest.raises(Exception, match="it cuts its input into tiles itself"):
        compiled(tiling)
    with pytest.raises(Exception, match="This VAE is empty"):
        compiled(comfy.sd.VAE(sd={}))
