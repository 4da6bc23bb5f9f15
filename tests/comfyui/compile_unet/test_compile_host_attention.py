"""Compiled code is one graph on each attention that ComfyUI can start with, and computes what that attention computes.

What torch cannot compile all the same is named, with its place and what to do.
"""

import time
from itertools import product

import pytest
import torch
from cases import often
from comfy_host import vaes


def not_traceable(q, k, v, *arguments, **options):
    """Stands for the kernel of a package that torch cannot look into: in the layout [batch, tokens, heads, width]."""
    time.perf_counter_ns()
    with open(__file__, encoding="utf-8"):
        heads_first = [part.transpose(1, 2) for part in (q, k, v)]
        return torch.nn.functional.scaled_dot_product_attention(*heads_first).transpose(1, 2)


@pytest.fixture
def start_with(monkeypatch):
    """Let ComfyUI's attention be the one that a start option chooses."""
    from comfy.ldm.modules import attention

    def choose(name):
        if name == "attention_sage":
            monkeypatch.setattr(attention, "sageattn", not_traceable, raising=False)
        if name == "attention_flash":
            monkeypatch.setattr(attention, "flash_attn_wrapper", not_traceable)
        for slot in ("optimized_attention", "optimized_attention_masked"):
            monkeypatch.setattr(attention, slot, getattr(attention, name))

    return choose


ATTENTIONS = ["attention_sub_quad", "attention_split", "attention_pytorch", "attention_sage", "attention_flash"]
USUAL = [("attention_sub_quad", "aot_eager"), ("attention_sage", "eager")]


@pytest.mark.parametrize(("name", "backend"), often(USUAL, product(ATTENTIONS, ("eager", "aot_eager")), several=True))
def test_a_model_is_one_graph_and_draws_the_same(small, start_with, name, backend):
    start_with(name)
    expected = small.sample(small.model)
    model = small.run("PacelineCompileUNet", model=small.model, backend=backend, scope="whole_model")
    assert torch.equal(small.sample(model), expected)
    assert "compiled whole model: 1 graph, 0 recompiles" in small.report(model)
    assert "graph breaks" not in small.report(model)


def test_a_vae_with_attention_that_reads_memory_is_right_and_names_what_breaks_its_graph(small):
    from comfy.ldm.modules.diffusionmodules import model

    vae = vaes.kl(levels=1)
    for module in vae.first_stage_model.modules():
        if hasattr(module, "optimized_attention"):
            module.optimized_attention = model.normal_attention
    compiled = small.run("PacelineCompileVAE", vae=vae, compile_decoder=True, compile_encoder=False, backend="eager")
    latent = torch.randn(1, 4, 8, 12, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        assert torch.equal(compiled.decode(latent.clone()), vae.decode(latent.clone()))
    report = small.run("PacelineOptimizationReport", vae=compiled)
    assert "graph breaks at" in report
    assert "--use-pytorch-cross-attention" in report


def test_what_breaks_the_graph_is_named_with_its_place_and_what_to_do(small):
    def slow_patch(q, k, v, extra_options):
        with open(__file__, encoding="utf-8"):
            return q, k, v

    patched = small.model.clone()
    patched.set_model_attn1_patch(slow_patch)
    expected = small.sample(patched)
    model = small.run("PacelineCompileUNet", model=patched, backend="eager", scope="whole_model")
    assert torch.equal(small.sample(model), expected)
    summary = model.get_attachment("paceline").find("compilation").last_summary()
    assert summary.state == "partly"
    assert "graph breaks at slow_patch (test_compile_host_attention.py:" in summary.headline
    assert "remove the node" in summary.headline
