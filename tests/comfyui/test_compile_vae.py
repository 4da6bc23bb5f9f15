"""Compile VAE on real VAEs of all kinds with random weights. The backend ``eager`` traces and guards as any other."""

import copy
from functools import partial

import pytest
import torch
import torch._dynamo
from comfy_host import vaes
from compiled_models import dynamic
from vae_calls import decode, encode, image, latent

pytestmark = pytest.mark.usefixtures("fresh_compiler")

SETTINGS = {"compile_decoder": True, "compile_encoder": True, "backend": "eager", "mode": "default"}


@pytest.fixture
def vae(studio):
    """One level, which is traced in half of the time: a picture is as large as its latent."""
    return vaes.kl(levels=1)


@pytest.fixture
def compiled(studio):
    def run(vae, **settings):
        return studio.run("PacelineCompileVAE", vae=vae, **{**SETTINGS, **settings})

    return run


@pytest.fixture
def report(studio):
    return lambda vae: studio.report(vae=vae)


def test_decoding_and_encoding_run_compiled_and_give_the_same(vae, compiled, report):
    ours = compiled(vae)
    assert "not used yet" in report(ours)
    assert torch.equal(decode(ours, latent()), decode(vae, latent()))
    assert "compiled decode: 1 graph, 0 recompiles" in report(ours)
    assert "compiled calls: 1\n" in report(ours)
    assert torch.equal(encode(ours, image(16, 24)), encode(vae, image(16, 24)))
    assert "compiled encode: 2 graphs" in report(ours)
    assert "VAE (AutoencoderKL) on cpu" in report(ours)
    again = compiled(vae)  # the node run again finds what was compiled
    decode(again, latent())
    assert "compiled decode: 1 graph, 0 recompiles" in report(again)
    assert "compiled calls: 1\n" in report(again)


def test_leaving_the_node_out_leaves_no_trace(vae, compiled, report, studio):
    network = vae.first_stage_model
    before = decode(vae, latent())
    attributes = {name: sorted(vars(module)) for name, module in network.named_modules()}
    ours = compiled(compiled(vae), channels_last=True)
    assert report(ours).count("Compile VAE") == 1, "a second node replaces the first"
    torch.testing.assert_close(decode(ours, latent()), before, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(encode(ours, image(16, 24)), encode(vae, image(16, 24)), rtol=1e-3, atol=1e-3)
    removed = studio.nodes["PacelineRemoveOptimizations"].execute(vae=ours).result[1]
    for plain in (vae, removed):
        assert type(plain).__name__ == "VAE" and type(plain).__mro__[1] is object
        assert plain.first_stage_model is plain.patcher.model is network
        assert torch.equal(decode(plain, latent()), before)
        assert "No Paceline optimizations are attached to this VAE" in report(plain)
    assert {name: sorted(vars(module)) for name, module in network.named_modules()} == attributes
    assert all(weight.is_contiguous() for weight in network.parameters())


def test_nodes_of_comfyui_decode_and_encode_through_it(vae, compiled, report, core_node):
    ours = compiled(vae)
    mask = torch.zeros(1, 16, 24)
    mask[:, :8] = 1.0
    with torch.inference_mode():
        for node, inputs in (
            ("VAEDecode", {"samples": {"samples": latent()}}),
            ("VAEDecodeTiled", {"samples": {"samples": latent()}, "tile_size": 8, "overlap": 2}),
            ("VAEEncodeForInpaint", {"pixels": image(16, 24), "mask": mask}),
            ("VAEEncodeTiled", {"pixels": image(16, 24), "tile_size": 8, "overlap": 2}),
        ):
            found, expected = (core_node("nodes", node, vae=one, **inputs) for one in (ours, vae))
            if isinstance(found, dict):
                found, expected = found["samples"], expected["samples"]
            torch.testing.assert_close(found, expected)
            assert "fallback" not in report(ours)


def test_tiled_decoding_compiles_a_few_tile_sizes_not_every_tile(vae, compiled, report):
    ours = compiled(vae)
    samples = latent(60, 44)
    tiling = {"tile_x": 32, "tile_y": 32, "overlap": 4}
    torch.testing.assert_close(decode(ours, samples, **tiling), decode(vae, samples, **tiling))
    text = report(ours)
    # One for the first tile, one for any; on a CPU torch treats images as small as these differently: one more.
    assert int(text.split("compiled decode: ")[1].split()[0]) <= 3
    assert "fallback" not in text
    calls = int(text.rsplit("s for ", 1)[1].split()[0])
    assert calls > 10


def test_a_method_that_another_node_has_replaced_is_not_ours_to_compile(vae, compiled, report):
    patched = copy.copy(vae)
    patched.patcher = vae.patcher.clone()
    patched.patcher.add_object_patch("decode", lambda samples: vae.first_stage_model.decoder(samples) * 0)
    ours = compiled(patched)
    assert torch.equal(decode(ours, latent()), decode(patched, latent()))
    assert "another node has replaced this method" in report(ours)
    assert not torch.equal(decode(ours, latent()), decode(vae, latent()))


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
    what = "compiled 1 kind of block, 3 places: "
    assert what in found and "fallback" not in found
    assert int(found.split(what)[1].split()[0]) <= 3, "blocks and tiles share their code"
    assert torch.equal(encode(ours, pixels), encoded)
    assert {name: sorted(vars(module)) for name, module in vae.first_stage_model.named_modules()} == attributes


def test_dynamic_vram_is_left_whether_vae_precision_comes_before_or_after(studio, compiled, report):
    vae, again = vaes.kl(levels=1), vaes.kl(levels=1)
    vae.patcher = dynamic(vae.patcher)
    vae.patcher.cached_patcher_init = (lambda disable_dynamic=False: again.patcher, ())
    half = partial(studio.run, "PacelineVAEPrecision", dtype="bf16")
    pictures = []
    for ours in (compiled(half(vae=vae)), half(vae=compiled(vae))):
        assert next(ours.first_stage_model.parameters()).dtype == torch.bfloat16
        pictures.append(decode(ours, latent()))
        assert "compiled decode: 1 graph" in report(ours)
        removed = studio.nodes["PacelineRemoveOptimizations"].execute(vae=ours).result[1]
        assert removed.patcher is vae.patcher and removed.vae_dtype == torch.float32
    assert torch.equal(*pictures)


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
    vae = vaes.kl(levels=1)  # dynamic VRAM keeps weights as the file has them, here in fp32
    vae.patcher = dynamic(vae.patcher)
    vae.vae_dtype = torch.bfloat16
    ours = compiled(studio.run("PacelineVAEPrecision", vae=vae, channels_last=True), channels_last=True)
    assert torch.isfinite(decode(ours, latent())).all()
    assert "compiled decode: 1 graph" in report(ours)
    assert next(vae.first_stage_model.parameters()).dtype == torch.float32
