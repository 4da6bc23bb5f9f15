"""Set Attention Processor on ComfyUI's own models."""

import pytest
import torch
from attention_calls import with_override
from distances import relative

SAME = "ComfyUI's own attention is sdpa already, so it changes nothing"
RUNS_ON_CPU = ["auto", "sdpa", "sdpa_flash", "sdpa_math", "vanilla"]


@pytest.mark.parametrize("backend", RUNS_ON_CPU)
def test_every_backend_draws_the_same_image(studio, baseline, backend):
    model = studio.attention(studio.model, backend)
    assert relative(studio.sample(model), baseline) < 1e-4
    report = studio.report(model)
    # 7 blocks with self- and cross-attention, 2 steps; positive and negative in one batch
    nothing_changed = f"{SAME}\n" if backend in ("auto", "sdpa") else ""
    assert (nothing_changed or "in 28 attention calls\n    calls: 28\n") in report
    assert "VAE, text encoders and ControlNets choose their own attention" in report


def test_an_interrupt_is_no_failure_of_a_kernel(studio):
    """In older ComfyUI it derives from Exception, as what a kernel raises."""
    from comfy.model_management import InterruptProcessingException

    technique = studio.attention(studio.model, "sdpa").get_attachment("paceline").find("attention")
    assert InterruptProcessingException in technique.policy.always_raised


def test_nothing_is_installed_where_comfyui_computes_the_same_by_itself(studio, monkeypatch):
    from comfy.ldm.modules import attention

    slot = "optimized_attention_override"
    model = studio.attention(studio.model, "sdpa")
    assert not any(slot in options for options in studio.options_seen(model))
    # Another attention by default (a start option): sdpa is a change, and is counted.
    monkeypatch.setattr(attention, "optimized_attention", attention.attention_sub_quad)
    studio.sample(model)
    assert "sdpa in 28 attention calls\n    calls: 28\n" in studio.report(model)


def test_an_override_of_another_pack_stays_in_force_whichever_comes_first(studio, baseline):
    calls = []

    def doubled_values(func, q, k, v, *args, **kwargs):
        calls.append(q.shape)
        return func(q, k, v * 2, *args, **kwargs)

    expected = studio.sample(with_override(studio.model, doubled_values))
    assert relative(expected, baseline) > 1e-3
    for model in (
        studio.attention(with_override(studio.model, doubled_values), "vanilla"),
        with_override(studio.attention(studio.model, "vanilla"), doubled_values),
    ):
        calls.clear()
        assert relative(studio.sample(model), expected) < 1e-4
        assert len(calls) == 28
        assert "vanilla in 28 attention calls\n    calls: 28\n" in studio.report(model)


@pytest.mark.parametrize(
    ("module", "whose"),
    [
        ("/home/me/ComfyUI/custom_nodes/ComfyUI-KJNodes.nodes.model", "the attention override of ComfyUI-KJNodes"),
        ("C:\\ComfyUI\\custom_nodes\\pack_x_v2.nodes", "the attention override of pack.v2"),
        ("comfy_extras.nodes_cache", "ComfyUI's comfy_extras.nodes_cache"),
        ("somewhere", "an attention override of another node"),
    ],
)
def test_the_sentence_says_whose_override_computes_the_calls(studio, module, whose):
    def selfish(func, q, k, v, heads, **kwargs):
        return torch.zeros_like(q)

    selfish.__module__ = module
    model = studio.attention(with_override(studio.model, selfish), "vanilla")
    studio.sample(model, steps=1)
    assert f"vanilla not active: {whose} computed the call itself" in studio.report(model)


OPTIONS = {"use_split_cross_attention": "attention_split", "use_sage_attention": "attention_sage"}


@pytest.mark.parametrize("name", OPTIONS)
def test_auto_leaves_the_attention_in_place_that_comfyui_was_started_with(studio, baseline, monkeypatch, name):
    from comfy.cli_args import args
    from comfy.ldm.modules import attention

    option, asked = f"--{name.replace('_', '-')}", []

    def started_with(*args, **kwargs):
        asked.append(args[0].shape)
        return attention.attention_pytorch(*args, **kwargs)

    started_with.__name__ = OPTIONS[name]
    monkeypatch.setattr(args, name, True, raising=False)
    monkeypatch.setattr(attention, "optimized_attention", attention.wrap_attn(started_with))
    model = studio.attention(studio.model, "auto")
    assert torch.equal(studio.sample(model), baseline)
    assert len(asked) == 28
    assert f"ComfyUI was started with {option}, which auto leaves in place" in studio.report(model)
    chosen = studio.attention(studio.model, "vanilla")
    studio.sample(chosen)
    assert "vanilla in 28 attention calls" in studio.report(chosen) and len(asked) == 28
    assert f"in the place of {option}, with which ComfyUI was started" in studio.report(chosen)
