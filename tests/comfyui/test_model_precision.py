"""Model Precision and VAE Precision: what ComfyUI computes for a file of that dtype, and nothing left on."""

import pytest
import torch
from cases import often
from comfy_host import checkpoints, vaes
from comfy_host.transformers import ALL, build
from distances import relative
from int8_models import only
from paceline.optimizers.core.errors import UnsupportedModel
from trust.trust_nodes import others
from vae_calls import decode, encode, image, latent


@pytest.fixture
def precision(studio):
    return lambda model, **settings: studio.run("PacelineModelPrecision", model=model, **settings)


def module_size(model):
    import comfy.model_management

    return comfy.model_management.module_size(model.model)


def staged(network):
    """What dynamic VRAM brings each weight to the GPU in: (module's note, the weight's own dtype)."""
    return {
        (m.weight_comfy_model_dtype, m.weight.dtype) for m in network.modules() if "weight_comfy_model_dtype" in vars(m)
    }


@pytest.mark.parametrize(("name", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_half_precision_is_what_core_computes_in_it(studio, baseline, precision, name, dtype):
    model = precision(studio.model, dtype=name)
    image = studio.sample(model)
    assert torch.equal(image, studio.sample(studio.in_dtype(dtype, dtype)))
    assert 0 < relative(image, baseline) < 0.1
    assert 0.5 < module_size(model) / module_size(studio.model) < 0.51  # the noise schedule stays in fp32
    assert torch.equal(studio.sample(studio.model), baseline)
    assert f"computes in {name} instead of fp32; weights in {name}" in studio.report(model)
    assert "active in 2 model calls" in studio.report(model)
    assert staged(model.model.diffusion_model) == {(dtype, dtype)}
    assert staged(studio.model.model.diffusion_model) == {(torch.float32, torch.float32)}


def test_fp32_over_fp16_weights_casts_at_each_use_and_needs_no_more_memory(studio, precision):
    half = studio.in_dtype(torch.float16, torch.float16)
    model = precision(half, dtype="fp32")
    assert torch.equal(studio.sample(model), studio.sample(studio.in_dtype(torch.float16, torch.float32)))
    assert "weights in fp16, cast at each use" in studio.report(model)
    shared = {p.data_ptr() for p in half.model.parameters()}
    assert all(p.data_ptr() in shared for p in model.model.parameters())
    assert not torch.equal(studio.sample(half), studio.sample(model))


def test_what_another_branch_computes_in_while_it_is_loaded_does_not_count(studio, precision):
    with pytest.raises(UnsupportedModel) as before:
        precision(studio.model, dtype="fp32", strict=True)
    other = studio.model.clone()
    other.set_model_compute_dtype(torch.float16)  # as ModelComputeDtype does
    studio.sample(other)
    assert studio.model.model.manual_cast_dtype == torch.float16
    with pytest.raises(UnsupportedModel) as after:
        precision(studio.model, dtype="fp32", strict=True)
    assert str(after.value) == str(before.value)


@pytest.mark.parametrize("how", ["beside", "appended", "after"])
def test_what_other_nodes_hold_is_cast_where_it_meets_the_network(studio, precision, how):
    """Keys that IP-Adapter and NAG make in the MODEL's dtype when they run, and GLIGEN's boxes: in either order."""

    def theirs(model):
        from comfy.ldm.modules.attention import optimized_attention

        clone = model.clone()
        layer = clone.model.diffusion_model.middle_block[1].transformer_blocks[0].attn2
        width = layer.to_k.in_features
        dtype = clone.model.get_dtype()
        context = torch.randn(1, 4, width, generator=torch.Generator().manual_seed(1)).to(dtype)
        with torch.inference_mode():
            keys = layer.to_k(context)

        def replace(q, k, v, extra_options):
            more = optimized_attention(q, *[keys.expand(len(q), -1, -1)] * 2, extra_options["n_heads"])
            return optimized_attention(q, k, v, extra_options["n_heads"]) + more

        if how == "beside":
            clone.set_model_attn2_replace(replace, "middle", 0, 0)
        elif how == "appended":
            (clone,) = others.held_tokens(clone)
        else:
            clone.set_model_patch(lambda x, extra_options: x + context.mean(), "middle_patch")
        return clone

    expected = studio.sample(theirs(studio.model))
    first = studio.sample(theirs(precision(studio.model, dtype="bf16")))
    last = studio.sample(precision(theirs(studio.model), dtype="bf16"))
    assert relative(first, expected) < 0.1 and relative(last, expected) < 0.1


def test_channels_last_reaches_every_convolution(studio, baseline, precision):
    seen = {}
    model = precision(studio.model, channels_last=True, dtype="fp32")
    network = model.model.diffusion_model
    convolutions = {name: m for name, m in network.named_modules() if isinstance(m, torch.nn.Conv2d)}
    hooks = [
        m.register_forward_pre_hook(lambda _, args, name=name: seen.update({name: args[0].stride(1) == 1}))
        for name, m in convolutions.items()
    ]
    torch.testing.assert_close(studio.sample(model), baseline, rtol=1e-3, atol=1e-3)
    for hook in hooks:
        hook.remove()
    # ComfyUI itself turns what comes out of a transformer into the other order; a wider convolution turns it back.
    assert seen.keys() == convolutions.keys()
    assert seen["input_blocks.0.0"] and seen["input_blocks.1.0.in_layers.2"] and seen["input_blocks.1.1.proj_in"]
    assert sum(seen.values()) > len(seen) / 3
    assert all(m.weight.is_contiguous(memory_format=torch.channels_last) for m in convolutions.values())


def test_weights_that_dynamic_vram_left_in_the_files_dtype_are_brought_in_the_new_one(studio, precision):
    """It loads a file's tensors as they are, and casts on the way to the GPU."""
    half = studio.in_dtype(torch.float16, torch.float16)
    network = half.model.diffusion_model
    network.load_state_dict(studio.model.model.diffusion_model.state_dict(), assign=True)
    assert staged(network) == {(torch.float16, torch.float32)}
    assert staged(precision(half, dtype="bf16").model.diffusion_model) == {(torch.bfloat16, torch.float32)}


def test_the_layers_of_int8_compute_in_the_new_dtype(studio, precision):
    model = studio.run("PacelineQuantizeInt8", model=precision(studio.model, dtype="bf16"), **only("ff"))
    layers = [m for m in model.model.diffusion_model.modules() if hasattr(getattr(m, "weight", None), "_qdata")]
    assert len(layers) == 14 and all(layer.weight.dtype == torch.bfloat16 for layer in layers)


KINDS = {kind: (kind, {}) for kind in ALL} | {"curves": ("minimax_h3", {"adaln_curve_grid": 8, "time_embed_dim": 4})}


@pytest.mark.parametrize("kind", often(("wan", "curves"), KINDS))
def test_transformers_too(studio, precision, kind):
    """Wan computes its first layer in fp32, whatever its weights are in; MiniMax H3 may have tables in fp32."""
    name, settings = KINDS[kind]
    model = build(name, **settings)
    before = studio.draw(name, model)
    assert 0 < relative(studio.draw(name, precision(model, dtype="bf16")), before) < 0.1
    assert torch.equal(studio.draw(name, model), before)
    with pytest.raises(Exception, match="channels_last is for networks of convolutions.*Switch channels_last off"):
        precision(model, channels_last=True)


def both(vae):
    return decode(vae, 50 * latent()), encode(vae, image())


def test_vae_computes_in_bfloat16_as_core_would(studio):
    import comfy.sd

    vae = vaes.taesd()
    before = both(vae)
    half = studio.run("PacelineVAEPrecision", vae=vae, dtype="bf16")
    assert staged(half.first_stage_model) == {(torch.bfloat16, torch.bfloat16)}
    assert staged(vae.first_stage_model) == {(torch.float32, torch.float32)}
    found = both(half)
    core = both(comfy.sd.VAE(sd=checkpoints.taesd_state_dict(), dtype=torch.bfloat16))
    assert all(torch.equal(a, b) for a, b in zip(found, core, strict=True))
    assert all(not torch.equal(a, b) for a, b in zip(found, before, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(both(vae), before, strict=True))
    report = studio.run("PacelineOptimizationReport", vae=half)
    assert "VAE Precision" in report and "computes in bf16 instead of fp32" in report
    removed = studio.nodes["PacelineRemoveOptimizations"].execute(vae=half).result[1]
    assert removed.first_stage_model is vae.first_stage_model and removed.vae_dtype == torch.float32


def test_a_forward_that_holds_layers_or_tensors_must_come_later(studio):
    """Regional prompts and their like close over the layer that they stand for, whose weights are in another dtype."""
    layer = studio.model.model.diffusion_model.middle_block[1].transformer_blocks[0].attn1
    more = torch.ones(layer.to_out[0].out_features)
    for forward in (
        lambda x, *args, held=layer, **options: type(held).forward(held, x),
        lambda x, held=more, **_: x + held,
    ):
        model = studio.model.clone()
        model.add_object_patch("diffusion_model.middle_block.1.transformer_blocks.0.attn1.forward", forward)
        plain = studio.sample(model)
        with pytest.raises(UnsupportedModel, match="transformer_blocks.0.attn1.forward holds .*Put that node after"):
            studio.run("PacelineModelPrecision", model=model, dtype="bf16")
        assert torch.equal(studio.sample(model), plain)


def test_what_a_wrapper_around_the_network_adds_meets_it_in_its_dtype(studio, precision):
    from comfy.patcher_extension import WrappersMP

    more = torch.full((1, 4, 1, 1), 0.1, dtype=studio.model.model.get_dtype())

    def wrapped(model):
        clone = model.clone()
        around = lambda executor, x, *args, **kwargs: executor(x + more, *args, **kwargs)  # noqa: E731
        clone.add_wrapper_with_key(WrappersMP.DIFFUSION_MODEL, "theirs", around)
        return clone

    image = studio.sample(precision(wrapped(studio.model), dtype="bf16"))
    assert torch.equal(image, studio.sample(wrapped(precision(studio.model, dtype="bf16"))))
    assert relative(image, studio.sample(wrapped(studio.model))) < 0.1
