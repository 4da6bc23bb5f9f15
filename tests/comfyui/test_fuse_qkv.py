"""Fuse QKV on ComfyUI's own models: the same image, no second copy of the weights, and nothing left behind."""

from __future__ import annotations

import gc

import pytest
import torch
from comfy_host import checkpoints, in_process
from comfy_host.transformers import TRANSFORMERS, build, conditioning, latent

ALL, TEXT = "q, k and v in 14", "k and v in 14"


def memory(model):
    """Bytes of all weights, each piece of memory once."""
    tensors = list(model.model.parameters())
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def weights(model):
    return {name: tensor.clone() for name, tensor in model.model.diffusion_model.state_dict().items()}


def with_lora(model, strength, part="to_k"):
    clone = model.clone()
    key = f"diffusion_model.input_blocks.1.1.transformer_blocks.0.attn1.{part}.weight"
    shape = model.model.state_dict()[key].shape
    difference = torch.randn(shape, generator=torch.Generator().manual_seed(5)) * 0.1
    assert clone.add_patches({key: ("diff", (difference,))}, strength) == [key]
    return clone


def test_same_image_same_weights_same_memory(studio, baseline, fuse):
    before, names, size = weights(studio.model), set(studio.model.model.state_dict()), memory(studio.model)
    model = fuse(studio.model)
    torch.testing.assert_close(studio.sample(model), baseline, rtol=1e-5, atol=1e-5)
    report = studio.report(model)
    assert ALL in report and TEXT in report and "fallbacks: 0" in report
    assert "q, k and v of 7 attention layers, k and v of 7 attention layers" in report
    assert memory(studio.model) == size
    assert set(studio.model.model.state_dict()) == names
    assert all(
        torch.equal(tensor, before[name]) for name, tensor in studio.model.model.diffusion_model.state_dict().items()
    )


def test_twenty_switches_leave_the_original_as_it_was(studio, baseline, fuse):
    network, before = studio.model.model.diffusion_model, weights(studio.model)
    attributes = {name: sorted(module.__dict__) for name, module in network.named_modules()}
    model = fuse(studio.model)
    images = [studio.sample(which) for _ in range(20) for which in (model, studio.model)]
    assert all(torch.equal(image, baseline) for image in images[1::2])
    assert all(torch.equal(image, images[0]) for image in images[::2])
    assert {name: sorted(module.__dict__) for name, module in network.named_modules()} == attributes
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


@pytest.mark.parametrize("part", ["to_q", "to_v"])
def test_lora_strength_can_change_after_the_node(studio, baseline, fuse, part):
    model = fuse(studio.model)
    images = {}
    for strength in (0.5, 1.0, 0.0, 1.0):
        expected = studio.sample(with_lora(studio.model, strength, part))
        for chosen in (with_lora(model, strength, part), fuse(with_lora(studio.model, strength, part))):
            torch.testing.assert_close(studio.sample(chosen), expected, rtol=1e-5, atol=1e-5)
        images[strength] = expected
    assert torch.equal(images[0.0], baseline)
    assert not torch.equal(images[0.5], images[1.0])


def test_the_weights_are_let_go_after_the_run(studio, fuse):
    """What is unloaded must be free: nothing but the parameters may hold their memory between runs."""
    from torch.multiprocessing.reductions import StorageWeakRef

    model = checkpoints.tiny_sd15(width=32, context=48, seed=3)
    studio.sample(fuse(model), steps=1)
    storages = [StorageWeakRef(tensor.untyped_storage()) for tensor in model.model.parameters()]
    for tensor in model.model.parameters():
        tensor.data = tensor.data.clone()
    assert all(storage.expired() for storage in storages)


def pieces(model):
    """Addresses of the pieces of memory that the weights are in."""
    parts = (
        (parameter._qdata, parameter._params.scale) if hasattr(parameter, "_qdata") else (parameter,)
        for parameter in model.model.parameters()
    )
    return {tensor.untyped_storage().data_ptr() for tensors in parts for tensor in tensors}


def _another_clone(studio, model, fused):
    studio.sample(model, steps=1)


def _dropped(studio, model, fused):
    fused.clear()
    gc.collect()


def _unloaded(studio, model, fused):
    import comfy.model_management

    comfy.model_management.unload_all_models()


@pytest.mark.parametrize("end", [_another_clone, _dropped, _unloaded])
@pytest.mark.parametrize("int8", [False, True], ids=["float", "int8"])
def test_each_weight_has_memory_of_its_own_again_at_the_end(studio, fuse, end, int8):
    model = checkpoints.tiny_sd15(width=32, context=48, seed=4)
    if int8:
        model = studio.run("PacelineQuantizeInt8", model=model, include="attn")
    expected, before = studio.sample(model, steps=1), len(pieces(model))
    fused = [fuse(model)]
    image = studio.sample(fused[0], steps=1)
    # 7 layers with q, k and v in one piece, 7 with k and v; with int8, scales as well, but none of a bias
    assert before - len(pieces(model)) == 7 * (2 + 1) * (2 if int8 else 1)
    end(studio, model, fused)
    assert len(pieces(model)) == before
    assert torch.equal(studio.sample(model, steps=1), expected)
    assert torch.equal(studio.sample(fuse(model), steps=1), image)


def test_a_model_in_16_bit_weights_computes_as_it_does_alone(studio, fuse):
    """Half-precision weights on a CPU: ComfyUI casts them at each use."""
    import comfy.model_management
    import comfy.model_patcher
    import comfy.supported_models

    config = comfy.supported_models.SD15(checkpoints.SD15_CONFIG | {"model_channels": 32, "context_dim": 48})
    config.unet_config |= {"num_heads": 4, "num_head_channels": -1}
    config.set_inference_dtype(torch.float16, torch.float32)
    base = config.get_model({}, "", device=torch.device("cpu")).eval()
    source = studio.model.model.diffusion_model.state_dict()
    base.diffusion_model.load_state_dict({name: tensor.half() for name, tensor in source.items()})
    device = comfy.model_management.get_torch_device()
    model = comfy.model_patcher.CoreModelPatcher(base, device, device)
    torch.testing.assert_close(studio.sample(fuse(model)), studio.sample(model), rtol=1e-5, atol=1e-5)


def test_saving_the_model_gives_the_same_file(studio, fuse, tmp_path):
    import comfy.utils

    model = fuse(with_lora(studio.model, 1.0))
    studio.sample(model)
    state = {name: tensor for name, tensor in model.model.diffusion_model.state_dict().items()}
    comfy.utils.save_torch_file(state, str(tmp_path / "model.safetensors"))
    loaded = comfy.utils.load_torch_file(str(tmp_path / "model.safetensors"))
    assert loaded.keys() == state.keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in state.items())
    size = sum(tensor.nbytes for tensor in state.values())
    assert (tmp_path / "model.safetensors").stat().st_size < size * 1.05 + 100_000


def test_inside_of_a_compiled_network_it_is_one_graph(studio, baseline, fuse):
    from comfy_api.torch_helpers import set_torch_compile_wrapper
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    model = fuse(studio.model)
    compiled = model.clone()
    set_torch_compile_wrapper(model=compiled, backend="eager", fullgraph=True)
    expected = studio.sample(model, steps=4)
    for _ in range(2):
        assert torch.equal(studio.sample(compiled, steps=4), expected)
    assert counters["stats"]["unique_graphs"] == 1
    report = studio.report(model)
    assert "q, k and v in 28 and for k and v in 28 attention calls" in report and "fallbacks: 0" in report
    torch._dynamo.reset()


def _ltx():
    settings = {"num_layers": 2, "num_attention_heads": 2, "attention_head_dim": 16, "caption_channels": 24,
                "cross_attention_dim": 32, "in_channels": 128, "image_model": "ltxv"}  # fmt: skip
    import comfy.supported_models

    return checkpoints._patcher(
        checkpoints._base_model(comfy.supported_models.LTXV, settings, torch.float32, "cpu"), seed=0
    )


SERVED = {
    "qwen_image": "q, k and v in 4 attention calls",
    "wan": "q, k and v in 2 and for k and v in 2 attention calls",
    "wan_5b": "q, k and v in 2 and for k and v in 2 attention calls",
    "wan_i2v": "q, k and v in 2 and for k and v in 4 attention calls",
    "wan_vace": "q, k and v in 3 and for k and v in 3 attention calls",
    "wan_camera": "q, k and v in 2 and for k and v in 2 attention calls",
    "krea2": "q, k and v in 6 attention calls",
    "anima": "q, k and v in 2 and for k and v in 2 attention calls",
    "cosmos_predict2": "q, k and v in 2 and for k and v in 2 attention calls",
    "mage_flow": "q, k and v in 4 attention calls",
    "ltx": "q, k and v in 2 and for k and v in 2 attention calls",
    "wan_animate": "q, k and v in 2 and for k and v in 4 attention calls",
    "wan_dancer": "q, k and v in 2 and for k and v in 4 attention calls",
    "wan_humo": "q, k and v in 2 and for k and v in 2 attention calls",
    "wan_scail": "q, k and v in 2 and for k and v in 4 attention calls",
    "hidream_o1": "q, k and v in 2 attention calls",
    "omnigen2": "q, k and v in 4 attention calls",
    "boogu": "q, k and v in 7 attention calls",
}


@pytest.mark.parametrize("name", SERVED)
def test_transformers(studio, fuse, name):
    if name == "ltx":
        model, image = _ltx(), torch.zeros(1, 128, 2, 4, 6)
        text = [
            [
                torch.randn(1, 20, 24, generator=torch.Generator().manual_seed(1)),
                {"frame_rate": 25, "attention_mask": torch.ones(1, 20)},
            ]
        ]
    else:
        model, image, text = build(name), latent(name), conditioning(name)

    def sample(chosen):
        return in_process.sample(chosen, text, text, image, steps=1, seed=7, cfg=1.0, scheduler="simple")

    before, size = sample(model), memory(model)
    assert before.isfinite().all()
    fused = fuse(model)
    torch.testing.assert_close(sample(fused), before, rtol=1e-5, atol=1e-5)
    report = studio.report(fused)
    assert SERVED[name] in report and "fallbacks: 0" in report
    assert memory(model) == size
    assert torch.equal(sample(model), before)


UNKNOWN = ("kandinsky5", "kandinsky5_image")
"""Its layers ask for queries in pieces where there are many tokens, so computing keys with them would be in vain."""


@pytest.mark.parametrize("name", [*(name for name in TRANSFORMERS if name not in (*SERVED, *UNKNOWN)), "minimax_h3"])
def test_families_that_are_fused_by_design_are_named_as_such(fuse, name):
    with pytest.raises(Exception, match=r"computes them together already \(.*qkv(_proj)?\)"):
        fuse(build(name))
