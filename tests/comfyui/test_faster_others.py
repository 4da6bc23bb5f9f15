"""ComfyUI's own nodes in *Make this workflow faster*: where they are tried, and what is found out about them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from comfy_host import transformers
from executing import Executor, node
from faster_prompts import PROMPT, ask, with_other_attention
from paceline.core.errors import UnsupportedModel

WAN = "wan_animate2"


def plan_of(prompt: Any, choice: str = "fast") -> Any:
    from paceline.faster.plan import make_plans
    from paceline.faster.workflow import Workflow
    from paceline.nodes import NODES

    (plan,) = [one for one in make_plans(Workflow.read(prompt), choice, NODES) if one.link.input == "model"]
    return plan


def tried(prompt: Any, choice: str = "fast") -> set[str]:
    from paceline.nodes import NODES

    return {step.node for step in plan_of(prompt, choice).tries.values()} - NODES.keys()


def prompt_with(*types: str) -> dict[str, Any]:
    return copy.deepcopy(PROMPT) | {f"more {type}": node(type) for type in types}


def plant(monkeypatch: Any, id: str, kind: Any) -> None:
    from nodes import NODE_CLASS_MAPPINGS

    monkeypatch.setitem(NODE_CLASS_MAPPINGS, id, kind)


def test_they_are_tried_where_they_are_and_where_there_is_something_for_them_to_do(comfyui):
    from nodes import NODE_CLASS_MAPPINGS

    there = {"WanAnimate2Cache", "FluxKVCache"} & NODE_CLASS_MAPPINGS.keys()
    assert tried(PROMPT) == set()
    wanted = prompt_with("WanAnimate2ToVideo", "ReferenceLatent")
    assert tried(wanted) == there
    assert tried(wanted, "lossless") == there - {"FluxKVCache"}
    assert tried(prompt_with("WanAnimate2ToVideo", "WanAnimate2Cache")) == set()


def test_comfyuis_int8_attention_is_tried_where_comfyui_offers_it_and_never_with_ours(comfyui, monkeypatch, studio):
    from paceline.faster.others import apart, with_other

    class Backend:
        RETURN_TYPES, FUNCTION, offered = ("MODEL",), "patch", ["pytorch attention"]

        @classmethod
        def INPUT_TYPES(cls) -> Any:  # noqa: N802
            return {"required": {"model": ("MODEL",), "attention": (cls.offered,)}}

        def patch(self, model: Any, attention: str) -> tuple[Any]:
            clone = model.clone()
            clone.set_attachments("attention", attention)
            return (clone,)

    with_other_attention(monkeypatch)
    plant(monkeypatch, "ModelAttentionBackend", Backend)
    assert tried(PROMPT) == set()
    Backend.offered = [*Backend.offered, "comfy kitchen attention"]
    assert tried(PROMPT) == {"ModelAttentionBackend"} and tried(PROMPT, "lossless") == set()
    plan = plan_of(PROMPT)
    assert apart(plan.tries) == [frozenset(("ModelAttentionBackend", "Set Attention Processor"))]
    assert any("is not watched for wrong numbers" in note for note in plan.notes)
    made = with_other(plan.tries["ModelAttentionBackend"], studio.model, (1, 4, 16, 16))
    assert made.get_attachment("attention") == "comfy kitchen attention"


def test_sparse_attention_is_given_its_choices_and_keeps_its_own_floor(comfyui, monkeypatch, studio):
    """As ComfyUI declares it from 0.36 on, with its defaults."""
    from comfy_api.latest import io
    from paceline.faster import plan as planning
    from paceline.faster.node_types import node_type
    from paceline.faster.others import OTHERS, with_other
    from paceline.recipes.apply import Machine
    from paceline.workbench.recipe import Step

    given: dict[str, Any] = {}

    class Sparse(io.ComfyNode):
        @classmethod
        def define_schema(cls) -> io.Schema:
            options = [io.DynamicCombo.Option("sol-attn", [io.Float.Input("tau", default=1.3)])]
            inputs = [
                io.Model.Input("model"), io.DynamicCombo.Input("selection", options=options),
                io.Float.Input("start_percent", default=0.2), io.Int.Input("min_tokens", default=12288),
            ]  # fmt: skip
            return io.Schema(
                "BlockSparseAttention", "Model Sparse Attention", inputs=inputs, outputs=[io.Model.Output()]
            )

        @classmethod
        def execute(cls, model: Any, **values: Any) -> io.NodeOutput:
            given.update(values)
            return io.NodeOutput(model.clone())

    plant(monkeypatch, "BlockSparseAttention", Sparse)
    assert tried(PROMPT) == set()  # on this device it would do nothing
    monkeypatch.setattr(planning, "machine_here", lambda: Machine("cuda"))
    assert tried(PROMPT) == {"BlockSparseAttention"}
    assert node_type("BlockSparseAttention").title == "Model Sparse Attention"
    step = Step("BlockSparseAttention", OTHERS["BlockSparseAttention"].inputs)
    with pytest.raises(UnsupportedModel, match="from 12288 tokens on, here are at most 4096"):
        with_other(step, studio.model, (1, 16, 1, 64, 64))
    assert with_other(step, studio.model, (1, 16, 21, 60, 104)) is not studio.model
    assert given["selection"] == {"selection": "sol-attn", "tau": 1.3}
    assert {given["start_percent"], given["min_tokens"]} == {0.2, 12288}


def workflow(comfyui: Executor, name: str, beside: str, more: dict[str, Any]) -> dict[str, Any]:
    sampling = {"seed": 3, "steps": 8, "cfg": 1.0, "sampler_name": "euler", "scheduler": "simple", "denoise": 1.0}
    text = transformers.conditioning(name)
    links = {name: [name, 0] for name in ("model", "positive", "negative")}
    return {
        "model": comfyui.give("MODEL", name, transformers.build(name)),
        "positive": comfyui.give("CONDITIONING", f"text of {name}", [[text[0][0], text[0][1] | more]]),
        "negative": comfyui.give("CONDITIONING", f"none of {name}", text),
        "latent": comfyui.give("LATENT", f"blank of {name}", {"samples": transformers.latent(name)}),
        "sampler": node("KSampler", **links, latent_image=["latent", 0], **sampling),
        "save": node("PreviewAny", source=["sampler", 0]),
        "beside": node(beside),
    }


def probed(comfyui: Executor, prompt: dict[str, Any], title: str) -> Any:
    from paceline.faster.jobs import JOBS

    state = ask(do="run", prompt=prompt, choice="fast")
    job = JOBS.find(state["job"])
    assert title in job.plans[0].tries
    comfyui.run(state["prompt"])
    comfyui.run(ask(do="next", job=state["job"])["prompt"])
    said = [line["text"] for line in ask(do="next", job=state["job"])["lines"]]
    (found,) = [one for one in job.probed[0] if one.name == title]
    untried = [one.name for one in job.probed[0] if one.untried]
    assert not found.untried and any(line.startswith("Not tried") for line in said) == bool(untried)
    return found, said, job


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def test_a_cache_of_the_poses_is_the_same_picture_and_is_measured_where_it_is_full(comfyui):
    if WAN in transformers.lacking():
        pytest.skip("this ComfyUI has no Wan Animate 2")
    from paceline.faster.runs import inserted

    more = {"pose_video_latent": noise(1, 16, 2, 16, 24)}
    prompt = workflow(comfyui, WAN, "WanAnimate2ToVideo", more)
    found, _, job = probed(comfyui, prompt, "WanAnimate2Cache")
    assert not found.why_not and found.error < 1e-5
    assert found.speedup[2] < 8  # of all evaluations: the first of them takes its time
    plan = job.plans[0]
    kept = inserted(job.workflow, [(plan.link, [plan.tries["WanAnimate2Cache"]])])
    assert kept.keys() - prompt.keys() and {"WanAnimate2Cache"} == {
        kept[id]["class_type"] for id in kept.keys() - prompt.keys()
    }
    plain, faster = (comfyui.value(one, ["sampler", 0])["samples"] for one in (prompt, kept))
    assert torch.allclose(plain, faster, atol=1e-5) and plain.std() > 0.1


def test_a_cache_for_other_weights_changes_the_picture_which_is_measured(comfyui, monkeypatch):
    from paceline.faster import job

    with_other_attention(monkeypatch)
    monkeypatch.setattr(job, "SPARE", 0.0)  # as if each evaluation took minutes: there is work for one of them
    more = {"reference_latents": [noise(1, 128, 8, 8)]}
    found, said, _ = probed(comfyui, workflow(comfyui, "flux2", "ReferenceLatent", more), "Flux KV Cache")
    assert not found.why_not and found.error > 1e-4
    assert "Not tried, as the time for trying was spent on others: Set Attention Processor." in said
    assert "Apply ToMe: it is for UNets only" in said


def test_a_node_for_another_network_says_so(comfyui, studio):
    from paceline.faster.others import with_other
    from paceline.workbench.recipe import Step

    with pytest.raises(UnsupportedModel, match="FluxKVCache is for Flux, this network is another one"):
        with_other(Step("FluxKVCache"), studio.model, (1, 4, 8, 8))
