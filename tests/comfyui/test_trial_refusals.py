"""Workflows that the trial cannot measure: the sentence says why before anything runs."""

from __future__ import annotations

import re

import pytest
from trials import asked, base, node, ours


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [
        ({"photo": node("LoadImage", image="my cat.png")}, "LoadImage (node photo): .*image.*my cat.png"),
        ({"latent": node("VAEEncode", vae=["vae", 0])}, "VAEEncode (node latent) has nothing at its input pixels."),
        ({"vae": node("VAELoader", vae_name="none.safetensors")},
         "VAELoader (node vae) needs 'none.safetensors' for vae_name, which is not there."),
        ({"photo": node("SomePack", image="x")}, "Node 'SomePack' not found"),
    ],
)  # fmt: skip
def test_what_the_workflow_lacks_is_named(comfyui, studio, missing, sentence):
    photo = node("VAEEncode", pixels=["photo", 0], vae=["vae", 0])
    image = node("EmptyImage", width=64, height=64, batch_size=1, color=0)
    prompt = base(comfyui, studio) | {"latent": photo, "photo": image}
    assert asked(prompt, ["tried"])["why_not"] == ""
    state = asked(prompt | missing, ["tried"])
    assert state["why_not"].startswith("ComfyUI cannot run this workflow: ") and state["prompt"] is None
    assert re.search(re.escape(sentence).replace(r"\.\*", ".*"), state["why_not"])


@pytest.mark.parametrize("expands", [False, True])
def test_a_node_that_cannot_be_run_repeatedly_is_named_before_anything_runs(comfyui, studio, monkeypatch, expands):
    from comfy_api.latest import io

    import nodes

    class Odd(io.ComfyNode):
        @classmethod
        def define_schema(cls):
            models = {"inputs": [io.Model.Input("model")], "outputs": [io.Model.Output()]}
            return io.Schema(node_id="Odd", enable_expand=expands, **models)

        @classmethod
        def execute(cls, model):
            return io.NodeOutput(model)

    class Waiting(Odd):
        @classmethod
        async def execute(cls, model):
            return io.NodeOutput(model)

    monkeypatch.setitem(nodes.NODE_CLASS_MAPPINGS, "Odd", Odd if expands else Waiting)
    prompt = base(comfyui, studio) | {
        "odd": node("Odd", model=["tried", 0]) | {"_meta": {"title": "My odd node"}},
        "guider": node("BasicGuider", model=["odd", 0], conditioning=["positive", 0]),
    }
    said = "My odd node waits for others, or makes nodes of its own: it cannot be run repeatedly."
    assert asked(prompt, ["tried"])["why_not"] == said


def test_a_model_that_nothing_samples_with_says_so(comfyui, studio):
    prompt = {key: value for key, value in base(comfyui, studio).items() if key not in ("sampler", "decode")}
    assert asked(prompt, ["tried"])["why_not"].startswith("No sampler follows that gives a latent")


@pytest.mark.parametrize("circle", [("decoder", "decoder"), ("decoder", "other")])
def test_a_workflow_that_goes_in_a_circle_says_so(comfyui, studio, circle):
    first, second = circle
    prompt = base(comfyui, studio) | {
        first: ours("PacelineCompileVAE", vae=[second, 0]),
        second: ours("PacelineCompileVAE", vae=[first, 0]),
        "decode": node("VAEDecode", samples=["sampler", 0], vae=["decoder", 0]),
    }
    state = asked(prompt, ["tried"])
    assert state["prompt"] is None and "Dependency cycle detected" in state["why_not"]
