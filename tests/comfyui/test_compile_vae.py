"""Compile VAE on real VAEs with random weights. The backend ``eager`` traces and guards as any other."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
import torch._dynamo
from comfy_host import vaes

SETTINGS = {"compile_decoder": True, "compile_encoder": True, "backend": "eager", "mode": "default"}


@pytest.fixture
def vae(studio):
    return vaes.kl()


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def compiled(studio):
    def run(vae, **settings):
        return studio.run("PacelineCompileVAE", vae=vae, **{**SETTINGS, **settings})

    return run


@pytest.fixture
def report(studio):
    return lambda vae: studio.run("PacelineOptimizationReport", vae=vae)


def latent(height=8, width=12, batch=1, channels=4, frames=None):
    size = (batch, channels, height, width) if frames is None else (batch, channels, frames, height, width)
    return torch.randn(size, generator=torch.Generator().manual_seed(height * width))


def image(height=64, width=96, batch=1):
    return torch.rand(batch, height, width, 3, generator=torch.Generator().manual_seed(height * width))


def decode(vae, samples, **tiling):
    with torch.inference_mode():  # as ComfyUI runs its nodes
        return vae.decode_tiled(samples.clone(), **tiling) if tiling else vae.decode(samples.clone())


def encode(vae, pixels, **tiling):
    with torch.inference_mode():
        return vae.encode_tiled(pixels.clone(), **tiling) if tiling else vae.encode(pixels.clone())


def test_decoding_and_encoding_run_compiled_and_give_the_same(vae, compiled, report):
    ours = compiled(vae)
    assert "not used yet" in report(ours)
    assert torch.equal(decode(ours, latent()), decode(vae, latent()))
    assert "compiled decode: 1 graph, 0 recompiles" in report(ours)
    assert "compiled calls: 1, fallbacks: 0" in report(ours)
    assert torch.equal(encode(ours, image()), encode(vae, image()))
    assert "compiled encode: 2 graphs" in report(ours)
    assert "VAE (AutoencoderKL) on cpu" in report(ours)


def test_leaving_the_node_out_leaves_no_trace(vae, compiled, report, studio):
    network = vae.first_stage_model
    before = decode(vae, latent())
    attributes = {name: sorted(vars(module)) for name, module in network.named_modules()}
    ours = compiled(vae, channels_last=True)
    decode(ours, latent())
    removed = studio.nodes["PacelineRemoveOptimizations"].execute(vae=ours).result[1]
    for plain in (vae, removed):
        assert type(plain).__name__ == "VAE" and type(plain).__mro__[1] is object
        assert plain.first_stage_model is plain.patcher.model is network
        assert torch.equal(decode(plain, latent()), before)
        assert "No Paceline optimizations are attached to this VAE" in report(plain)
    assert {name: sorted(vars(module)) for name, module in network.named_modules()} == attributes
    assert all(weight.is_contiguous() for weight in network.parameters())


def test_two_copies_of_one_vae_alternate_without_meeting(vae, compiled):
    """Both are loaded at once; nothing compiles again, and only one of them compiles at all."""
    ours = compiled(vae)
    expected = decode(vae, latent())
    for _ in range(20):
        assert torch.equal(decode(ours, latent()), expected)
        assert torch.equal(decode(vae, latent()), expected)
    technique = ours.paceline_stack.find("compilation")
    state = next(iter(technique.used)).functions[0].state
    assert (state.graphs, state.compiled_calls, state.eager_count) == (1, 20, 0)


def test_running_the_node_again_compiles_nothing_again(vae, compiled, report):
    decode(compiled(vae), latent())
    again = compiled(vae)
    decode(again, latent())
    assert "compiled decode: 1 graph, 0 recompiles" in report(again)
    assert "compiled calls: 1, fallbacks: 0" in report(again)


def test_a_vae_that_nobody_holds_is_freed(studio, compiled):
    dropped = vaes.kl()
    network = weakref.ref(dropped.first_stage_model)
    ours = compiled(dropped)
    decode(ours, latent())
    del ours, dropped
    import comfy.model_management

    comfy.model_management.unload_all_models()
    gc.collect()
    assert network() is None


def test_the_technique_follows_copies_that_other_nodes_make(vae, compiled, report):
    ours = copy.copy(compiled(vae))
    ours.patcher = ours.patcher.clone()
    ours.first_stage_model = ours.patcher.model
    decode(ours, latent())
    assert "compiled decode" in report(ours)


def test_nodes_of_comfyui_decode_and_encode_through_it(vae, compiled, report, core_node):
    ours = compiled(vae)
    mask = torch.zeros(1, 64, 96)
    mask[:, :32] = 1.0
    with torch.inference_mode():
        for node, inputs in (
            ("VAEDecode", {"samples": {"samples": latent()}}),
            ("VAEDecodeTiled", {"samples": {"samples": latent()}, "tile_size": 64, "overlap": 16}),
            ("VAEEncode", {"pixels": image()}),
            ("VAEEncodeForInpaint", {"pixels": image(), "mask": mask}),
            ("VAEEncodeTiled", {"pixels": image(), "tile_size": 64, "overlap": 16}),
        ):
            found, expected = (core_node("nodes", node, vae=one, **inputs) for one in (ours, vae))
            if isinstance(found, dict):
                found, expected = found["samples"], expected["samples"]
            torch.testing.assert_close(found, expected)
            assert "fallbacks: 0" in report(ours)


def test_tiled_decoding_compiles_a_few_tile_sizes_not_every_tile(vae, compiled, report):
    ours = compiled(vae)
    samples = latent(60, 44)
    tiling = {"tile_x": 32, "tile_y": 32, "overlap": 4}
    torch.testing.assert_close(decode(ours, samples, **tiling), decode(vae, samples, **tiling))
    text = report(ours)
    # One for the first tile, one for any; on a CPU torch treats images as small as these differently: one more.
    assert int(text.split("compiled decode: ")[1].split()[0]) <= 3
    assert "fallbacks: 0" in text
    calls = int(text.rsplit("s for ", 1)[1].split()[0])
    assert calls > 10


def test_one_more_compilation_serves_all_sizes(vae, compiled, report):
    ours = compiled(vae)
    # torch itself treats images of less than 160 latent pixels differently on a CPU.
    for size in ((16, 16), (24, 24), (24, 16), (16, 20), (16, 16)):
        torch.testing.assert_close(decode(ours, latent(*size)), decode(vae, latent(*size)))
    assert "compiled decode: 2 graphs, 1 recompile" in report(ours)
    assert torch.equal(decode(ours, latent(batch=3)), decode(vae, latent(batch=3)))
    assert "fallbacks: 0" in report(ours)


def test_only_what_was_asked_for_is_compiled(vae, compiled, report):
    ours = compiled(vae, compile_encoder=False)
    encode(ours, image())
    assert "not compiled: decode was not called" in report(ours)
    with pytest.raises(Exception, match="compile_encoder and compile_decoder are both off. Switch one of them on."):
        compiled(vae, compile_encoder=False, compile_decoder=False)


def test_a_second_node_replaces_the_first(vae, compiled, report):
    ours = compiled(compiled(vae), backend="aot_eager", compile_encoder=False)
    assert report(ours).count("Compile VAE") == 1
    assert "decode with aot_eager" in report(ours)


def test_a_compiler_that_fails_costs_one_sentence(vae, compiled, report):
    @torch._dynamo.register_backend(name="paceline_broken")
    def broken(graph, inputs):
        raise RuntimeError("the compiler is on strike")

    ours = compiled(vae, backend="paceline_broken")
    for _ in range(2):
        assert torch.equal(decode(ours, latent()), decode(vae, latent()))
    assert "not compiled: all 1 calls ran uncompiled" in report(ours)
    assert "given up: torch could not compile it (RuntimeError: the compiler is on strike)" in report(ours)
    with pytest.raises(Exception, match="Compiling Compile VAE failed: .* on strike"):
        decode(compiled(vae, backend="paceline_broken", on_error="raise"), latent())
    assert torch.equal(decode(compiled(vae), latent()), decode(vae, latent()))


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
    assert torch.equal(decode(compiled(vae), latent()), decode(vae, latent()))
    assert not torch.equal(decode(ours, latent()), decode(vae, latent()))


def test_channels_last_changes_rounding_only(vae, compiled):
    samples = latent()
    ours = compiled(vae, channels_last=True)
    torch.testing.assert_close(decode(ours, samples), decode(vae, samples), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(encode(ours, image()), encode(vae, image()), rtol=1e-3, atol=1e-3)


def test_small_vaes_compile(studio, compiled, report):
    taesd = vaes.taesd()
    ours = compiled(taesd)
    torch.testing.assert_close(decode(ours, latent()), decode(taesd, latent()))
    torch.testing.assert_close(encode(ours, image()), encode(taesd, image()))
    assert "fallbacks: 0" in report(ours)


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


@pytest.mark.thorough
def test_video_vaes_encode_compiled(compiled, report):
    wan = vaes.wan()
    ours = compiled(wan)
    frames = torch.rand(5, 32, 48, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(encode(ours, frames), encode(wan, frames))
    assert "fallbacks: 0" in report(ours)


def test_a_part_that_cannot_be_compiled_does_not_spoil_the_rest_of_the_video(studio, compiled, report):
    @torch._dynamo.register_backend(name="paceline_second_fails")
    def second_fails(graph, inputs):
        second_fails.graphs = getattr(second_fails, "graphs", 0) + 1
        if second_fails.graphs > 1:
            raise RuntimeError("enough")
        return graph

    wan = vaes.wan()
    ours = compiled(wan, backend="paceline_second_fails")
    for _ in range(2):
        samples = latent(4, 6, channels=16, frames=3)
        assert torch.equal(decode(ours, samples), decode(wan, samples))
    assert "not compiled: all 1 calls ran uncompiled" in report(ours)


def test_vaes_that_cannot_be_compiled_are_refused_by_name(vae, studio, compiled):
    import comfy.sd

    with pytest.raises(Exception, match=r"VAE \(VideoVAE\) cannot be compiled: it works in chunks of frames .*Remove"):
        compiled(vaes.ltx())
    pixels = comfy.sd.VAE(sd={"pixel_space_vae": torch.tensor(1.0)})
    with pytest.raises(Exception, match=r"VAE \(PixelspaceConversionVAE\) cannot be compiled: it has no layers"):
        compiled(pixels)
    tiling = copy.copy(vae)
    tiling.handles_tiling = True
    with pytest.raises(Exception, match="it cuts its input into tiles itself"):
        compiled(tiling)
    with pytest.raises(Exception, match="This VAE is empty"):
        compiled(comfy.sd.VAE(sd={}))
    with pytest.raises(Exception, match="This VAE is a dict, not ComfyUI's own VAE object"):
        compiled({})


def test_dynamic_vram_is_left_for_a_second_copy_or_refused(vae, studio, compiled, report, monkeypatch):
    """There is no dynamic VRAM on a CPU: a patcher that says it is dynamic stands for it."""
    other = vaes.kl()

    def patcher(loads):
        dynamic = vae.patcher.clone()
        dynamic.is_dynamic = lambda: True

        def clone(disable_dynamic=False, model_override=None):
            if not loads:
                raise RuntimeError("cached_patcher_init is not initialized")
            return other.patcher.clone(model_override=model_override)

        dynamic.clone = clone
        return dynamic

    dynamic = copy.copy(vae)
    dynamic.patcher = patcher(loads=True)
    ours = compiled(dynamic)
    assert ours.first_stage_model is ours.patcher.model is other.first_stage_model
    assert torch.equal(decode(ours, latent()), decode(vae, latent()))
    assert "a second copy of its weights, without dynamic VRAM" in report(ours)
    removed = studio.nodes["PacelineRemoveOptimizations"].execute(vae=ours).result[1]
    assert removed.patcher is dynamic.patcher and removed.first_stage_model is vae.first_stage_model

    del ours
    gc.collect()
    dynamic.patcher = patcher(loads=False)
    with pytest.raises(Exception, match="uses ComfyUI's dynamic VRAM, which cannot be compiled.*--disable-dynamic"):
        compiled(dynamic)


def test_a_vae_that_does_not_fit_on_the_device_runs_as_before(vae, compiled, report, monkeypatch):
    ours = compiled(vae)
    expected = decode(vae, latent())
    monkeypatch.setattr(vae.first_stage_model, "model_lowvram", True)
    monkeypatch.setattr("comfy.model_management.load_models_gpu", lambda *args, **kwargs: None)
    assert torch.equal(decode(ours, latent()), expected)
    assert "the network is not loaded completely" in report(ours)


def test_the_compiler_of_torch_itself(studio, compiled, report):
    """inductor generates code here, once and for a tiny network; everything else is about tracing."""
    small = vaes.kl(levels=1)
    small.upscale_ratio = small.downscale_ratio = 1
    ours = compiled(small, backend="inductor", compile_encoder=False)
    torch.testing.assert_close(decode(ours, latent()), decode(small, latent()), rtol=1e-3, atol=1e-3)
    assert "compiled decode: 1 graph" in report(ours)
