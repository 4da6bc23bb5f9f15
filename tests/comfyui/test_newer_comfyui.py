"""What newer versions of ComfyUI hand over and ask for, at the interfaces through which they do.

Where the ComfyUI of these tests does not have one yet, a function with its name and its contract stands there.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
import torch

SLOT = "optimized_attention_override"


def set_model_optimized_attention(model, optimized_attention):
    """ComfyUI's own since 0.33, as its node Model Attention Backend calls it."""
    if hasattr(model, "set_model_optimized_attention"):
        model.set_model_optimized_attention(optimized_attention)
        return

    def optimized_attention_override(_, *args, **kwargs):
        return optimized_attention(*args, **kwargs)

    model.model_options["transformer_options"][SLOT] = optimized_attention_override


def test_the_backend_that_comfyuis_node_has_set_computes_the_calls_and_is_named(studio, baseline):
    from comfy.ldm.modules.attention import attention_pytorch

    clone = studio.model.clone()
    set_model_optimized_attention(clone, attention_pytorch)
    for model in (studio.attention(clone, "vanilla"), studio.attention(studio.model, "vanilla").clone()):
        set_model_optimized_attention(model, attention_pytorch)
        assert torch.equal(studio.sample(model), baseline)
        sentence = "vanilla not active: ComfyUI's Model Attention Backend (pytorch attention) computed the call itself"
        assert sentence in studio.report(model)


def wish(function, config=True):
    """What ComfyUI 0.34 keeps in a layer whose checkpoint asks for an attention of its own."""
    return SimpleNamespace(config={"attention": "comfy_kitchen_int8"} if config else None, function=function)


@pytest.fixture
def with_wishes(studio):
    """A checkpoint that asks for an attention of its own in one layer."""
    from comfy.ldm.modules.attention import attention_pytorch

    block = studio.model.model.diffusion_model.input_blocks[1][1].transformer_blocks[0]
    block.attn1.comfy_attention = wish(attention_pytorch)
    block.attn2.comfy_attention = wish(None, config=False)
    yield studio.model
    del block.attn1.comfy_attention, block.attn2.comfy_attention


def test_attention_that_a_checkpoint_asks_for_is_reported_or_left_alone(studio, with_wishes, monkeypatch):
    from comfy.ldm.modules import attention

    model = studio.attention(with_wishes, "sdpa_math")
    assert "the checkpoint asks for an attention of its own in 1 layer," in studio.report(model)
    left = studio.attention(with_wishes, "auto")
    assert not any(SLOT in options for options in studio.options_seen(left, steps=1))
    assert "the checkpoint asks for its own attention in 1 layer, which auto leaves in place" in studio.report(left)

    monkeypatch.setattr(attention, "optimized_attention", attention.attention_sub_quad)
    model = studio.run("PacelineCompileUNet", model=with_wishes, backend="eager", scope="repeated_blocks")
    with torch.compiler.set_stance("force_eager"):
        seen = studio.options_seen(model, steps=1)
    assert seen and not any(SLOT in options for options in seen)


def test_nothing_is_changed_where_comfyui_was_started_with_its_own_int8_attention(studio, monkeypatch):
    from comfy.ldm.modules import attention

    model = studio.attention(studio.model, "sdpa_math")
    policy = model.get_attachment("paceline").find("attention").policy
    policy.backend = dataclasses.replace(policy.backend, name="kitchen")
    monkeypatch.setattr(attention, "attention_comfy_kitchen_int8", attention.attention_pytorch, raising=False)
    assert not any(SLOT in options for options in studio.options_seen(model, steps=1))
    assert "ComfyUI's own attention is kitchen already, so it changes nothing" in studio.report(model)
