"""Compile VAE on kinds of VAEs: small ones, videos, what cannot be compiled, and what does not fit."""

from __future__ import annotations

import copy
from functools import partial

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
    assert "fallback" not in report(ours)


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
    assert "fallback" not in report(ours)


def test_a_vae_that_cuts_tiles_itself_and_decodes_with_a_transformer_compiles_its_blocks(studio, compiled, report):
    vae = vaes.h3()
    ours, pixels = compiled(vae, fullgraph=True), image(64, 32)
    encoded = encode(vae, pixels)
    decode(vae, latent(4, 4, channels=24, frames=1))
    attributes = {name: sorted(vars(module)) for name, module in vae.first_stage_model.named_modules()}
    for frames, size in ((1, (8, 4)), (7, (4, 6))):  # 64 pixels are a tile
        samples = latent(*size, channels=24, frames=frames)
        plain = decode(vae, samples)
        assert plain.std() > 0.01, "a picture with something on it"
        assert torch.equal(decode(ours, samples), plain)
        assert torch.equal(decode(ours, samples, tile_x=64, tile_y=64, overlap=16), plain)
    found = report(ours)
    assert "compiled 3 x TransformerBlock: " in found and "fallback" not in found
    assert int(found.split("compiled 3 x TransformerBlock: ")[1].split()[0]) <= 3, "blocks and tiles share their code"
    assert torch.equal(encode(ours, pixels), encoded)
    assert {name: sorted(vars(module)) for name, module in vae.first_stage_model.named_modules()} == attributes


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


def test_dynamic_vram_is_left_whether_vae_precision_comes_before_or_after(studio, compiled, report):
    import comfy.model_patcher

    class Dynamic(comfy.model_patcher.ModelPatcher):
        def is_dynamic(self):
            return True

    vae, again = vaes.kl(levels=1), vaes.kl(levels=1)
    plain = vae.patcher
    dynamic = vae.patcher = Dynamic(plain.model, plain.load_device, plain.offload_device)
    dynamic.cached_patcher_init = (lambda disable_dynamic=False: again.patcher, ())
    half = partial(studio.run, "PacelineVAEPrecision", dtype="bf16")
    pictures = []
    for ours in (compiled(half(vae=vae)), half(vae=compiled(vae)), half(vae=compiled(half(vae=vae)))):
        assert next(ours.first_stage_model.parameters()).dtype == torch.bfloat16
        pictures.append(decode(ours, latent()))
        assert "compiled decode: 1 graph" in report(ours)
        removed = studio.nodes["PacelineRemoveOptimizations"].execute(vae=ours).result[1]
        assert removed.patcher is dynamic and removed.vae_dtype == torch.float32
    assert all(torch.equal(picture, pictures[0]) for picture in pictures)


def test_a_video_vae_that_is_no_single_graph_is_left_uncompiled(studio, compiled, report, monkeypatch):
    """On an H100 with torch 2.11 a break in Wan's decoder had each layer compiled for each of the first frames."""
    from comfy.ldm.wan.vae import RMS_norm

    vae = vaes.wan()
    code = torch.zeros(1, 16, 3, 4, 4)
    plain, norm = vae.decode(code), RMS_norm.forward

    def forward(self, x):
        torch._dynamo.graph_break()
        return norm(self, x)

    monkeypatch.setattr(RMS_norm, "forward", forward)
    ours = compiled(vae, strict=False)
    assert torch.equal(ours.decode(code), plain)
    assert "graph" in report(ours) and ours.paceline_stack.techniques[0].last_summary().state == "inactive"


def test_weights_that_dynamic_vram_would_cast_are_cast_where_it_is_left(studio, compiled, report):
    import comfy.model_patcher

    class Dynamic(comfy.model_patcher.ModelPatcher):
        def is_dynamic(self):
            return True

    vae = vaes.kl(levels=1)  # dynamic VRAM keeps weights as the file has them, here in fp32
    vae.patcher = Dynamic(vae.patcher.model, vae.patcher.load_device, vae.patcher.offload_device)
    vae.vae_dtype = torch.bfloat16
    ours = compiled(studio.run("PacelineVAEPrecision", vae=vae, channels_last=True), channels_last=True)
    assert torch.isfinite(decode(ours, latent())).all()
    assert "compiled decode: 1 graph" in report(ours)
    assert next(vae.first_stage_model.parameters()).dtype == torch.float32
