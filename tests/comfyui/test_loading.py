"""No node of ours makes ComfyUI move weights that it would not move without it, nor holds them after a run.

Counted in ComfyUI's own model manager: each time it loads a model's weights, and each time it takes them off again.
"""

from __future__ import annotations

import copy
import gc
import weakref
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from cases import often
from comfy_host import checkpoints, in_process, vaes
from executing import node
from model_changes import lora_for
from our_nodes import put
from vae_calls import decode

RUNS = 4
NODES = ("compile", "precision", "int8", "all")
VAE_NODES = {
    "PacelineVAEPrecision": {"dtype": "bf16", "channels_last": True},
    "PacelineCompileVAE": {"backend": "eager", "compile_decoder": True, "compile_encoder": False},
}


def with_node(studio, name, model):
    for each in ("int8", "precision", "fuse", "attention", "merge", "reuse") if name == "all" else (name,):
        model = put(studio, each, model)
    return model


@pytest.fixture(scope="module")
def model(studio):
    return checkpoints.smallest_unet(width=64, context=48)


@pytest.fixture
def moved(monkeypatch):
    """Counts what ComfyUI's model manager does with weights, by what it is."""
    import comfy.model_patcher

    counts: Counter[str] = Counter()
    patcher = comfy.model_patcher.ModelPatcher
    load, unpatch, weight = patcher.load, patcher.unpatch_model, patcher.patch_weight_to_device

    def counted_load(self, *args, **kwargs):
        counts["loads"] += 1
        return load(self, *args, **kwargs)

    def counted_unpatch(self, device_to=None, unpatch_weights=True):
        counts["weights put back"] += bool(unpatch_weights)
        return unpatch(self, device_to, unpatch_weights)

    def counted_weight(self, key, *args, **kwargs):
        counts["weights patched"] += not kwargs.get("return_weight")
        return weight(self, key, *args, **kwargs)

    monkeypatch.setattr(patcher, "load", counted_load)
    monkeypatch.setattr(patcher, "unpatch_model", counted_unpatch)
    monkeypatch.setattr(patcher, "patch_weight_to_device", counted_weight)
    return counts


def counts_of(studio, moved, *models, runs=RUNS, decoders=(None,)):
    """Return what is moved while these models are sampled with in turn, and these VAEs decode what they made.

    What was compiled runs what it was made of.
    """
    import comfy.model_management

    comfy.model_management.unload_all_models()
    moved.clear()
    with torch.compiler.set_stance("force_eager"):
        for run in range(runs):
            latent = studio.sample(models[run % len(models)], steps=1)
            vae = decoders[run % len(decoders)]
            if vae is not None:
                decode(vae, latent)
    return Counter(moved)


@pytest.mark.parametrize("name", often(["all", "compile"], NODES))
def test_two_workflows_in_turns_load_as_often_as_without_the_node(studio, model, moved, name):
    """One with the node and one without it, from one file; ten runs."""
    base = lora_for(model)
    without = counts_of(studio, moved, base, base.clone(), runs=10)
    changed = with_node(studio, name, base)
    found = counts_of(studio, moved, base, changed, runs=10)
    others = int(changed.model is not base.model)  # two networks are each loaded once
    assert found["loads"] <= without["loads"] + others
    assert found["weights patched"] <= (1 + others) * without["weights patched"]


@pytest.mark.parametrize(
    "name", often(["PacelineApplyToMe"], ["PacelineSetAttentionProcessor", "PacelineApplyToMe", "PacelineCompileUNet"])
)
def test_prompts_with_and_without_the_node_in_turns_load_once(studio, model, comfyui, moved, name):
    """ComfyUI drops what a prompt does not ask for, so the node runs anew in each of its five prompts.

    Nodes that make other weights make them anew then, and both networks are loaded again.
    """
    import comfy.model_management

    puts = studio.nodes[name].define_schema().inputs
    inputs = {put.id: put.default for put in puts if getattr(put, "default", None) is not None}
    inputs |= {"backend": {"PacelineCompileUNet": "eager"}.get(name, "sdpa_math")} if "backend" in inputs else {}
    prompt = {
        "model": comfyui.give("MODEL", "small", model),
        "ours": node(name, model=["model", 0], **inputs),
        "positive": comfyui.give("CONDITIONING", "some", in_process.random_conditioning(model, seed=1)),
        "latent": comfyui.give("LATENT", "blank", {"samples": torch.zeros(1, 4, 8, 8)}),
        "save": node("PreviewAny", source=["sampler", 0]),
    }
    options = {"steps": 1, "cfg": 1.0, "sampler_name": "euler", "scheduler": "normal", "denoise": 1.0}
    links = {"positive": ["positive", 0], "negative": ["positive", 0], "latent_image": ["latent", 0]}
    comfy.model_management.unload_all_models()
    moved.clear()
    with torch.compiler.set_stance("force_eager"):
        for run in range(10):
            source = "ours" if run % 2 else "model"
            sampler = node("KSampler", model=[source, 0], seed=run, **links, **options)
            asked = {id: one for id, one in prompt.items() if source == "ours" or id != "ours"}
            comfyui.run({**asked, "sampler": sampler})
    assert moved["loads"] == 1 and not moved["weights put back"]


@pytest.mark.parametrize("name", VAE_NODES)
def test_vaes_in_turns_load_as_often_as_without_the_node(studio, model, moved, name):
    vae = vaes.kl(levels=1)
    without = counts_of(studio, moved, model, runs=10, decoders=(vae, copy.copy(vae)))
    changed = studio.run(name, vae=vae, **VAE_NODES[name])
    found = counts_of(studio, moved, model, runs=10, decoders=(vae, changed))
    others = int(changed.first_stage_model is not vae.first_stage_model)
    assert found["loads"] <= without["loads"] + others


def test_a_run_that_loads_weights_again_tells_the_page_for_how_long_and_why(studio, model, monkeypatch):
    import comfy.model_management
    import comfy.model_patcher
    from paceline.optimizers.in_comfyui.second_weights import moves as weights

    told, now = [], [0.0]  # a clock of the test's own: only loading takes time
    load = comfy.model_patcher.ModelPatcher.load

    def slow(self, *args, **kwargs):
        now[0] += 0.25
        return load(self, *args, **kwargs)

    monkeypatch.setattr(weights, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(weights, "send", lambda event, node, payload: told.append((event, node, payload)))
    monkeypatch.setattr(comfy.model_patcher.ModelPatcher, "load", slow)
    changed = studio.attention(model, "sdpa_math")
    changed.get_attachment("paceline").find("attention").node_id = "7"
    comfy.model_management.unload_all_models()
    for _ in range(2):  # the second has it there
        studio.sample(changed, steps=1)
    comfy.model_management.unload_all_models()
    comfy.model_management.load_models_gpu([studio.model])
    studio.sample(changed, steps=1)
    (event, node, first), (_, _, again) = told
    assert (event, node, first["why"]) == ("paceline.loading", "7", "")
    assert first["seconds"] >= 0.25 and again["seconds"] >= 0.25
    assert again["why"].startswith(f"loading weights again took {again['seconds']:.3g} s")
    assert f"{type(studio.model.model).__name__} took their place on the device" in again["why"]


HOLDING = ("merge", "attention", "compile", "fuse", "int8", "precision")


@contextmanager
def no_collector():
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("name", often(["compile", "int8"], HOLDING))
def test_a_model_is_free_when_nobody_holds_it(studio, name):
    model = checkpoints.tiny_sd15(width=32, context=48)
    chosen = put(studio, name, model)
    studio.sample(chosen)
    networks = [weakref.ref(chosen.model), weakref.ref(model.model)]
    with no_collector():
        del chosen, model
        studio.sample(studio.model)
        assert [network() is None for network in networks] == [True, True]


def test_a_vae_is_free_when_nobody_holds_it(studio):
    vae = vaes.kl(levels=1)
    chosen = studio.run("PacelineCompileVAE", vae=vae, **VAE_NODES["PacelineCompileVAE"])
    chosen.decode(torch.zeros(1, 4, 8, 8))
    network = weakref.ref(vae.first_stage_model)
    with no_collector():
        del chosen, vae
        studio.sample(studio.model)
        assert network() is None
