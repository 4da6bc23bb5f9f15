"""What *Make this workflow faster* finds in a workflow, and what it tries there."""

from __future__ import annotations

import copy
import re
from importlib import import_module
from typing import Any

import pytest
from comfy_host import checkpoints, transformers
from executing import node
from faster_prompts import PROMPT, on_device, with_other_attention
from paceline.measure.expect import ROUNDING, Probed
from paceline.measure.replay import Sampling, Subsample
from paceline.optimizers.core.choices import CHOICES
from paceline.optimizers.core.errors import InvalidSetting
from paceline.optimizers.models.families import FAMILIES
from paceline.optimizers.step_reuse.parts import undivided
from paceline.optimizers.token_merging.kv_downsample import minimum_tokens
from paceline.service.faster.levers import levers
from paceline.service.faster.workflow import ModelLink, Workflow
from paceline.service.recipe import Step


@pytest.fixture(autouse=True)
def nodes_of_comfyui(comfy: Any, monkeypatch: Any) -> None:
    """ComfyUI's nodes, where its own attention is not ours."""
    import_module("nodes")
    with_other_attention(monkeypatch)


def plans_of(prompt: Any, choice: str = "fast", of: str = "model") -> list[Any]:
    from paceline.nodes import NODES
    from paceline.service.faster.plan import make_plans

    return [one for one in make_plans(Workflow.read(prompt), choice, NODES) if one.link.input == of]


def prompt_with(**changes: dict[str, Any]) -> dict[str, Any]:
    return copy.deepcopy(PROMPT) | changes


def plan(prompt: dict[str, Any], choice: str = "fast") -> Any:
    (found,) = plans_of(prompt, choice)
    return found


def notes_of(plan: Any) -> list[str]:
    """Return what is left out, and why, but for what compiles."""
    return [str(note) for note in plan.notes if not note.startswith("Compile ")]


def nodes_of(plan: Any) -> set[str]:
    return {step.node for step in plan.tries.values()} | ({"PacelineReuseSteps"} if plan.reuse else set())


def plain_prompt(**changes: dict[str, Any]) -> dict[str, Any]:
    """The workflow without EasyCache."""
    prompt = prompt_with(**changes)
    prompt["5"]["inputs"]["model"] = ["1", 0]
    return prompt


def test_it_finds_where_a_model_is_sampled_and_what_each_choice_tries_there():
    prompt = plain_prompt()
    assert plan(prompt).link.receivers == (("5", "model"),)
    attention = "PacelineSetAttentionProcessor"
    assert nodes_of(plan(prompt, "lossless")) == {attention}
    assert nodes_of(plan(prompt, "fast")) == {"PacelineApplyToMe", attention, "PacelineReuseSteps"}
    (merging,) = [step for step in plan(prompt, "balanced").tries.values() if step.node == "PacelineApplyToMe"]
    assert merging.inputs == {"preset": "quality"}


def test_each_approximate_attention_that_works_here_is_tried_where_the_picture_may_change(monkeypatch):
    from paceline.optimizers.attention.registry import Probe
    from paceline.service.faster import plan as server

    works = {"sage": len}
    monkeypatch.setattr(server, "probe_backend", lambda backend, *_: Probe(function=works.get(backend.name)))
    title = "Set Attention Processor (sage)"
    assert plan(plain_prompt()).tries[title] == Step("PacelineSetAttentionProcessor", {"backend": "sage"})
    assert title not in plan(plain_prompt(), "lossless").tries


def test_what_is_there_already_is_not_tried_twice():
    found = plan(PROMPT)  # EasyCache is on the model
    assert not found.reuse
    assert notes_of(found) == ["Reuse Steps is left out: EasyCache skips steps already."]
    merged = node("TomePatchModel", model=["1", 0], ratio=0.3)
    assert "PacelineApplyToMe" not in nodes_of(plan(prompt_with(**{"2": merged})))
    preset = node("PacelineOptimizePreset", model=["1", 0], preset="fast")
    assert plans_of(prompt_with(**{"2": preset})) == []


def custom(**changes: dict[str, Any]) -> dict[str, Any]:
    """The workflow with a sampler that gets guider and noise levels from other nodes."""
    made = {
        "5": node("SamplerCustomAdvanced", guider=["guider", 0], sigmas=["sigmas", 0]),
        "guider": node("BasicGuider", model=["2", 0], conditioning=["3", 0]),
        "number": node("PrimitiveInt", value=4),
        "many": node("PrimitiveInt", value=20),
        "turbo": node("PrimitiveBoolean", value=True),
        "switch": node("ComfySwitchNode", switch=["turbo", 0], on_true=["number", 0], on_false=["many", 0]),
    }
    return prompt_with(**made | changes)


SCHEDULES = {
    "ManualSigmas": ({"sigmas": "0.909375, 0.725, 0.421875, 0."}, 3),
    "LTXVScheduler": ({"steps": 8, "max_shift": 2.05, "base_shift": 0.95, "stretch": True, "terminal": 0.1}, None),
    "BasicScheduler": ({"model": ["2", 0], "scheduler": "simple", "steps": ["switch", 0], "denoise": 1.0}, 4),
    "Flux2Scheduler": ({"steps": 20, "width": 64, "height": 64}, None),
}


@pytest.mark.parametrize(("name", "about"), SCHEDULES.items())
def test_fewer_than_five_steps_get_no_reuse_steps(comfyui, name, about):
    inputs, few = about
    prompt = custom(sigmas=node(name, **inputs))
    prompt["guider"]["inputs"]["model"] = ["1", 0]
    found = plan(prompt)
    assert {"PacelineApplyToMe", "PacelineSetAttentionProcessor"} <= nodes_of(found)
    assert found.reuse == (few is None)
    sentence = f"Reuse Steps is left out: of so few steps ({few}), each changes the picture too much."
    assert notes_of(found) == ([sentence] if few else [])


def test_steps_that_are_not_known_before_a_run_are_not_few(comfyui):
    text = node("CLIPTextEncode", clip=["1", 1], text="4")
    prompt = custom(sigmas=node("BasicScheduler", steps=["text", 0]), text=text)
    prompt["guider"]["inputs"]["model"] = ["1", 0]
    assert notes_of(plan(prompt)) == [] and plan(prompt).reuse


def test_steps_are_those_that_a_sampler_does_of_a_schedule(comfyui):
    first, second = {"start_at_step": 0, "end_at_step": 12}, {"start_at_step": 12, "end_at_step": 10000}
    prompt = prompt_with(**{"5": node("KSamplerAdvanced", model=["1", 0], steps=20, **first)})
    prompt["6"] = node("KSamplerAdvanced", model=["2", 0], steps=20, **second)
    assert sorted(link.steps for link in Workflow.read(prompt).model_links) == [8, 12]


def test_the_solver_is_known_where_the_samplers_name_one(comfyui):
    chosen, unknown = (custom(chosen=node("KSamplerSelect", sampler_name="dpmpp_2m")) for _ in range(2))
    chosen["5"]["inputs"]["sampler"], unknown["5"]["inputs"]["sampler"] = ["chosen", 0], ["nowhere", 0]
    for prompt, solver in ((chosen, "dpmpp_2m"), (unknown, None), (PROMPT, "euler")):
        assert [link.solver for link in Workflow.read(prompt).model_links] == [solver]


@pytest.mark.parametrize(
    ("file", "steps", "quantized"), [("x", 4, True), ("x", 20, False), ("z_int8.safetensors", 4, False)]
)
def test_int8_is_tried_where_steps_are_few_and_the_file_has_none(comfyui, monkeypatch, file, steps, quantized):
    on_device(monkeypatch, "cuda", can_compile=True)
    prompt = plain_prompt()
    prompt["1"]["inputs"]["ckpt_name"], prompt["5"]["inputs"]["steps"] = file, steps
    found = plan(prompt)
    assert ("PacelineQuantizeInt8" in nodes_of(found)) == quantized
    said = [str(note) for note in found.notes if "int8" in note]
    named = [f"Quantize int8 is left out: {file} has int8 weights already, by its name."]
    assert said == (named if "int8" in file else [])


def test_the_second_model_of_a_guider_is_left_alone_as_the_first_decides_for_both(comfyui):
    second = node("UNETLoader", unet_name="x", weight_dtype="default")
    sides = {"model": ["1", 0], "positive": ["3", 0], "model_negative": ["second", 0], "negative": ["3", 0]}
    guider = node("DualModelGuider", cfg=4.0, **sides)
    sigmas = node("ManualSigmas", sigmas=", ".join(str(20.0 - step) for step in range(21)))
    assert plan(custom(second=second, guider=guider, sigmas=sigmas)).link.receivers == (("guider", "model"),)


@pytest.mark.parametrize(("turbo", "cached"), [(True, True), (False, False), ("text", False)])
def test_the_way_to_the_loader_goes_through_the_side_of_a_switch_that_is_chosen(comfyui, turbo, cached):
    prompt = custom(
        models=node("ComfySwitchNode", switch=["turbo", 0], on_true=["2", 0], on_false=["1", 0]),
        guider=node("BasicGuider", model=["models", 0], conditioning=["3", 0]),
        sigmas=node("Flux2Scheduler", steps=20, width=64, height=64),
    )
    prompt["turbo"]["inputs"]["value"] = turbo
    if turbo == "text":  # not known before the run
        prompt["turbo"] = node("CLIPTextEncode", clip=["1", 1], text="true")
    assert plan(prompt).reuse != cached  # EasyCache is on that side


def test_on_a_gpu_the_plan_names_the_number_of_tokens_from_which_apply_tome_pays(monkeypatch):
    on_device(monkeypatch, "cuda")
    (said,) = notes_of(plan(plain_prompt()))
    tokens, width, height = (int(number) for number in re.findall(r"\d+", said))
    assert tokens == minimum_tokens("cuda")
    assert width * height == tokens * 16**2


def offered(seconds: float, speedup: tuple[float, float, float], once: float = 0.0, decoding: float = 0.0) -> Any:
    """Return the offer for a sampler of 10 s in a run of ``seconds``, with one candidate, and a VAE's ``decoding``."""
    from paceline.service.faster.offers import Part, make_offer
    from paceline.service.faster.plan import Plan

    size = (1, 4, 8, 8)
    run = Sampling("0", "euler", [1.0, 0.0], False, size, Subsample(size, undivided), sampling_seconds=10.0)
    kinds = {"model": {}, "vae": {"Compile VAE": Step("x")}}
    plans = [Plan(ModelLink(name, ("1", 0), ()), tries) for name, tries in kinds.items()]
    parts = [Part("0", 10.0, [Probed("Quick", speedup, True, points=2, once=once)], run)]
    compiled = Probed("Compile VAE", (1.3, 2.2, 2.9), True, ROUNDING, points=1, once=25.0)
    parts += [Part("1", decoding, [compiled])] if decoding else []
    return make_offer(parts, plans, CHOICES["fast"].limit, seconds, 100)


def test_an_offer_is_of_the_whole_run_and_pays_within_a_hundred_pictures():
    sure = (1.15, 1.2, 1.25)
    assert offered(10.0, sure).names == {"Quick"} and offered(60.0, sure) is None
    assert offered(10.0, (1.02, 1.9, 3.0)) is None  # its lower end is no gain
    costly = offered(10.0, sure, once=99.0)
    assert 59 < costly.once / costly.won <= 60 and offered(10.0, sure, once=200.0) is None


def test_faster_steps_and_a_compiled_vae_are_one_offer():
    """A VAE is compiled where it wins back its seconds."""
    both = offered(80.0, (2.0, 2.0, 2.0), once=4.0, decoding=50.0)
    assert both.names == {"Quick", "Compile VAE"} and both.once == 29.0 and 0 < both.distance.high < 0.01
    assert "VAE 2.2x (1.3 to 2.9)" in both.payload["about"]["text"]
    alone = offered(80.0, (0.9, 1.0, 1.1), decoding=50.0)
    assert alone.names == {"Compile VAE"} and alone.payload["proof_seconds"] == [] and alone.sampling_speedup is None
    assert alone.run_speedup.likely == pytest.approx(80 / (80 - 50 * (1 - 1 / 2.2)))
    assert offered(80.0, (0.9, 1.0, 1.1), decoding=0.2) is None


def test_a_vae_is_compiled_on_cuda_where_it_is_not_yet(comfyui, monkeypatch):
    def tried(prompt: Any) -> list[Any]:
        return [plan.titles for plan in plans_of(prompt, "lossless", "vae")]

    there = plain_prompt(vae=node("PacelineCompileVAE", vae=["1", 2]))
    there["6"]["inputs"]["vae"] = ["vae", 0]
    assert tried(plain_prompt()) == [[]]
    on_device(monkeypatch, "cuda", can_compile=True)
    assert tried(plain_prompt()) == [["Compile VAE"]] and tried(there) == [[]]


def test_what_the_network_in_the_file_cannot_use_is_not_looked_at(comfyui, tmp_path, monkeypatch):
    from paceline.service.faster import plan as server

    def left_out(network: Any) -> dict[str, bool]:
        monkeypatch.setattr(server, "network_in", lambda path: (network, frozenset()))
        found = plan(plain_prompt())
        titles = {"PacelineApplyToMe": "Apply ToMe", "PacelineSetAttentionProcessor": "Set Attention Processor"}
        said = {title: f"{title} is left out: " in " ".join(map(str, found.notes)) for title in titles.values()}
        assert said == {title: node not in nodes_of(found) for node, title in titles.items()}
        return said

    monkeypatch.setattr(server, "model_file", lambda folder, name: tmp_path)
    assert left_out(transformers.build("flux")) == {"Apply ToMe": True, "Set Attention Processor": False}
    network = checkpoints.tiny_sd15(width=32, context=48)
    assert left_out(network) == {"Apply ToMe": False, "Set Attention Processor": False}
    closed = next(family for family in FAMILIES if not family.override_hook)  # no node can choose its attention
    monkeypatch.setattr(type(network.model.diffusion_model), "__module__", closed.networks[0] + ".model")
    assert left_out(network)["Set Attention Processor"]


def test_comfyuis_own_cache_is_named_where_there_is_something_for_it(comfyui):
    from nodes import NODE_CLASS_MAPPINGS

    if "FluxKVCache" not in NODE_CLASS_MAPPINGS:
        pytest.skip("this ComfyUI has no such cache")
    said = "ComfyUI has the node Flux KV Cache for such workflows; it is not measured here."
    beside = plain_prompt(more=node("ReferenceLatent"))
    assert said in map(str, plan(beside).notes) and said not in map(str, plan(plain_prompt()).notes)
    assert not any("is not measured here" in note for note in plan(beside, "lossless").notes)


def test_a_loader_whose_own_code_fails_is_passed_over(comfyui, monkeypatch):
    from nodes import NODE_CLASS_MAPPINGS

    class Loader:
        @classmethod
        def INPUT_TYPES(cls) -> Any:  # noqa: N802
            raise FileNotFoundError("models/other")

    monkeypatch.setitem(NODE_CLASS_MAPPINGS, "OtherLoader", Loader)
    broken = Workflow.read(plain_prompt(**{"1": node("OtherLoader", name="x.safetensors")}))
    assert [*levers(broken)] == [] and [link.upstream for link in broken.model_links] == [("1",)]


def test_a_workflow_of_too_many_nodes_is_refused(comfy):
    with pytest.raises(InvalidSetting, match="3001 nodes"):
        Workflow.read({str(number): node("A") for number in range(3001)})
