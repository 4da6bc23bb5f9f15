"""The pack on a ComfyUI that is too old, newer or otherwise strange, and its bookkeeping."""

import asyncio
import dataclasses
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from our_nodes import put, technique
from trust.trust_nodes import others


def test_one_node_that_cannot_be_imported_does_not_cost_the_others(studio, monkeypatch, caplog):
    import paceline.nodes as nodes

    monkeypatch.setitem(nodes.FILES, "Missing", "no_such_file")
    classes = asyncio.run(nodes.PacelineExtension().get_node_list())
    assert len(classes) == len(nodes.NODES) - 1 + len(nodes.INTERNAL)
    assert "the node Missing cannot be loaded" in caplog.text


def test_a_run_that_is_cancelled_in_its_first_step_is_not_called_idle(studio):
    def cancel(*_):
        raise KeyboardInterrupt

    model = studio.attention(studio.tome(studio.model), "sdpa")
    model.model_options["model_function_wrapper"] = cancel
    with pytest.raises(KeyboardInterrupt):
        studio.sample(model)
    summaries = [technique.last_summary() for technique in model.get_attachment("paceline").techniques]
    assert [(summary.state, summary.headline) for summary in summaries] == [("inactive", "no call was finished")] * 2
    assert "cancelled or failed" in studio.report(model)


@pytest.mark.parametrize("name", ["precision", "attention"])
def test_calls_that_another_nodes_step_cache_has_answered_are_not_counted(studio, name):
    """As EasyCache does: in a wrapper around the network, which then does not run. This one answers each third call."""
    (model,) = others.cache(put(studio, name, studio.model))
    studio.sample(model, steps=4)
    assert technique(model).runs.latest.activity.model_calls == 3


def test_the_report_before_any_sampling_says_so(studio):
    assert "not sampled yet" in studio.report(studio.tome(studio.model))


@pytest.mark.parametrize("fault", ["", "module 'comfy_kitchen' has no attribute 'new'"])
def test_a_comfyui_that_lacks_what_nodes_need_gets_none_and_a_sentence_with_the_cause(
    comfy, monkeypatch, caplog, fault
):
    import comfy.ops
    from paceline.nodes import INTERNAL, NODES, PacelineExtension
    from paceline.service.comfyui import machine

    assert len(asyncio.run(PacelineExtension().get_node_list())) == len(NODES) + len(INTERNAL)
    monkeypatch.setattr(machine, "host_version", lambda: "0.26.1")
    monkeypatch.delattr(comfy.ops, "scaled_dot_product_attention")
    if fault:
        monkeypatch.setattr(machine, "import_module", Mock(side_effect=AttributeError(fault)))
    with caplog.at_level("ERROR"):
        assert asyncio.run(PacelineExtension().get_node_list()) == []
    (message,) = caplog.messages
    assert message.startswith("Paceline: This ComfyUI (0.26.1) lacks what Paceline needs: comfy.")
    assert "Paceline needs ComfyUI 0.27 or newer" in message and fault in message


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
