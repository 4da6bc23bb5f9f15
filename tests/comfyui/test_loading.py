"""No node of ours makes ComfyUI move weights that it would not move without the node, over many runs.

Counted in ComfyUI's own model manager: each time it loads a model's weights, and each time it takes them off again.
"""

from __future__ import annotations

import time
from collections import Counter

import pytest
import torch
from comfy_host import checkpoints
from model_changes import lora_for
from reusing import reuse

RUNS = 4
NODES = {
    "compile": lambda studio, model: studio.run("PacelineCompileUNet", model=model, backend="eager"),
    "precision": lambda studio, model: studio.run("PacelineModelPrecision", model=model, dtype="bf16"),
    "int8": lambda studio, model: studio.run("PacelineQuantizeInt8", model=model, include="attn, ff"),
    "all": lambda studio, model: with_all(studio, model),
}


def with_all(studio, model):
    for name in ("int8", "precision"):
        model = NODES[name](studio, model)
    model = studio.run("PacelineFuseQKV", model=studio.attention(model, "sdpa_math"))
    return reuse(studio, studio.tome(model))


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


def counts_of(studio, moved, *models):
    """Return what is moved while these models are sampled with in turn; what was compiled runs what it was made of."""
    import comfy.model_management

    comfy.model_management.unload_all_models()
    moved.clear()
    with torch.compiler.set_stance("force_eager"):
        for run in range(RUNS):
            studio.sample(models[run % len(models)], steps=1)
    return Counter(moved)


@pytest.mark.parametrize("name", NODES)
def test_runs_load_as_often_as_without_the_node(studio, model, moved, name):
    base = lora_for(model)
    changed = NODES[name](studio, base)
    without, found = counts_of(studio, moved, base), counts_of(studio, moved, changed)
    assert without["loads"] == 1
    assert found <= without, (found, without)


def test_a_run_that_loads_weights_again_tells_the_page_for_how_long_and_why(studio, model, monkeypatch):
    import comfy.model_management
    import comfy.model_patcher
    from paceline.optimizers.hosts.comfyui.weights import moves as weights

    told = []
    load = comfy.model_patcher.ModelPatcher.load

    def slow(self, *args, **kwargs):
        time.sleep(0.2)
        return load(self, *args, **kwargs)

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
    assert first["seconds"] >= 0.2 and again["seconds"] >= 0.2
    assert again["why"].startswith(f"loading weights again took {again['seconds']:.3g} s")
    assert f"{type(studio.model.model).__name__} took their place on the device" in again["why"]
