"""Compile VAE on real VAEs with random weights. The backend ``eager`` traces and guards as any other."""

from __future__ import annotations

import copy

import torch
from vae_calls import decode, encode, image, latent


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
            ("VAEEncode", {"pixels": image(16, 24)}),
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


def test_no_memory_for_the_whole_image_still_falls_into_tiles(vae, compiled, report, monkeypatch):
    """ComfyUI's own way out of it; compiling must not take the error for one of its own."""
    network = vae.first_stage_model

    def forward(samples):
        if samples.shape[-2] > 130:  # ComfyUI's largest tile has 128 rows
            raise torch.OutOfMemoryError("too large")
        return type(network.post_quant_conv).forward(network.post_quant_conv, samples)

    ours = compiled(vae)
    decode(ours, latent(144, 8))
    monkeypatch.setattr(network.post_quant_conv, "forward", forward)
    tiled = decode(vae, latent(144, 8), tile_x=64, tile_y=64, overlap=16)
    torch.testing.assert_close(decode(ours, latent(144, 8)), tiled)


def test_a_method_that_another_node_has_replaced_is_not_ours_to_compile(vae, compiled, report):
    patched = copy.copy(vae)
    patched.patcher = vae.patcher.clone()
    patched.patcher.add_object_patch("decode", lambda samples: vae.first_stage_model.decoder(samples) * 0)
    ours = compiled(patched)
    assert torch.equal(decode(ours, latent()), decode(patched, latent()))
    assert "another node has replaced this method" in report(ours)
    assert not torch.equal(decode(ours, latent()), decode(vae, latent()))
