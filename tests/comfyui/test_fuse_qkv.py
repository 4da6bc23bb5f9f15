"""Fuse QKV on ComfyUI's own models: the same image, no second copy of the weights, nothing left behind, and other
patches obeyed."""

import cases
import pytest
import torch
from comfy_host import checkpoints
from comfy_host.transformers import TRANSFORMERS, build
from paceline.optimizers import qkv_fusion

CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def pieces(model):
    """The pieces of memory that the weights are in, by address, with their sizes."""
    tensors = [part for tensor in model.model.parameters() for part in parts(tensor)]
    return {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}


def parts(parameter):
    return (parameter._qdata, parameter._params.scale) if hasattr(parameter, "_qdata") else (parameter,)


def test_the_image_is_the_same_and_needs_no_second_copy_of_the_weights(studio, baseline, fuse):
    size = sum(pieces(studio.model).values())
    model = fuse(studio.model)
    torch.testing.assert_close(studio.sample(model), baseline, **CLOSE)
    report = studio.report(model)
    assert "q, k and v of 7 attention layers" in report
    assert "one multiplication for q, k and v in 14 attention calls" in report
    assert sum(pieces(studio.model).values()) == size


def test_where_it_is_slower_the_model_is_handed_on_and_the_node_says_why(studio, baseline, fuse, monkeypatch):
    monkeypatch.setitem(qkv_fusion.SLOWER, "cpu", "it is slower here")
    model = fuse(studio.model)
    assert torch.equal(studio.sample(model), baseline)
    assert "not active: it is slower here" in studio.report(model)


SERVED = {
    "qwen_image": 4, "qwen_image21": 4, "krea2": 6, "mage_flow": 4, "hidream_o1": 2, "omnigen2": 4, "boogu": 7,
    "wan": 2, "wan_5b": 2, "wan_i2v": 2, "wan_vace": 3, "wan_camera": 2, "wan_animate": 2, "wan_dancer": 2,
    "wan_humo": 2, "wan_scail": 2, "anima": 2, "cosmos_predict2": 2, "ltx": 2, "cogvideo": 2, "cogvideo_15": 2,
}  # fmt: skip
"""Calls of attention with q, k and v computed together."""

LAYOUTS = ("qwen_image", "krea2", "hidream_o1", "omnigen2", "boogu", "wan", "anima", "ltx")
"""One model of each class of attention layers."""

UNKNOWN = ("kandinsky5", "kandinsky5_image", "wan_animate2")
"""Kandinsky 5 asks for queries in pieces where there are many tokens, Wan Animate 2 often for keys and values of the
poses alone: computing them together would be in vain."""


@pytest.mark.parametrize("name", cases.often(LAYOUTS, SERVED))
def test_transformers(studio, fuse, name):
    model = build(name)
    before, size = studio.draw(name, model), sum(pieces(model).values())
    fused = fuse(model)
    torch.testing.assert_close(studio.draw(name, fused), before, rtol=1e-4, atol=1e-4)  # Krea 2 enlarges the rounding
    report = studio.report(fused)
    assert f"q, k and v in {SERVED[name]} attention calls" in report and "fallback:" not in report
    assert sum(pieces(model).values()) == size


BY_DESIGN = [*(name for name in TRANSFORMERS if name not in (*SERVED, *UNKNOWN)), "minimax_h3"]


@pytest.mark.parametrize("name", cases.often(("flux", "z_image", "minimax_h3"), BY_DESIGN))
def test_families_that_are_fused_by_design_are_named_as_such(fuse, name):
    with pytest.raises(Exception, match=r"computes them together already \(.*qkv(_proj)?\)"):
        fuse(build(name))


def extended(q, k, v, extra_options):
    """Reference-style nodes append tokens to keys and values, the same to both."""
    longer = torch.cat([k, k[:, :8]], dim=1)
    return q, longer, longer


def with_image(q, k, v, extra_options):
    """IP-Adapter and its kin replace attention to the text and add tokens of their own."""
    from comfy.ldm.modules.attention import optimized_attention

    image = torch.ones_like(k[:, :4])
    return optimized_attention(q, torch.cat([k, image], 1), torch.cat([v, image], 1), extra_options["n_heads"])


def other_values(model):
    model.set_model_attn1_patch(lambda q, k, v, extra_options: (q, k, v * 0.5))
    model.set_model_attn2_patch(lambda q, k, v, extra_options: (q, k, v * 0.5))


def partly_loaded(model):
    """ComfyUI applies LoRAs at each use to the weights that did not fit; those change from one use to the next."""
    first_attention(model).to_v.weight_function = [lambda weight: weight * 2]


def bypassed(model):
    """A LoRA in bypass mode."""
    layer = first_attention(model).to_q
    plain = layer.forward
    layer.forward = lambda x: plain(x) * 2


def first_attention(model):
    return model.model.diffusion_model.input_blocks[1][1].transformer_blocks[0].attn1


BESIDE = {
    "other values": (other_values, "no attention layer was called with the same tokens"),
    "longer context": (lambda model: model.set_model_attn1_patch(extended), "no attention layer was called with the"),
    "replaced": (lambda model: model.set_model_attn1_replace(with_image, "input", 1), "in 14 attention calls"),
    "partly loaded": (partly_loaded, "in 12 attention calls", "2 x fallback: the model is only partly loaded"),
    "bypass": (bypassed, "in 12 attention calls", "2 x fallback: code in test_fuse_qkv.py computes this layer itself"),
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE)
def test_other_code_in_the_attention_is_obeyed_and_counted(studio, fuse, name):
    change, *words = BESIDE[name]
    model = checkpoints.tiny_sd15(width=32, context=48)
    studio.sample(model, steps=1)  # loads it
    change(model)
    fused = fuse(model)
    torch.testing.assert_close(studio.sample(fused), studio.sample(model), **CLOSE)
    report = studio.report(fused)
    assert all(word in report for word in words), report
