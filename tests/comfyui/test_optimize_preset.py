"""Optimize (Preset) does what its single nodes do, says what it left out, and reports as one node."""

import json

import pytest
import torch
from comfy_host import vaes
from int8_models import TINY
from paceline.optimizers.core.errors import InvalidSetting, UnsupportedModel
from paceline.service.recipe import Recipe, Step, save_recipe

pytestmark = pytest.mark.usefixtures("user_folder")


def apply(studio, preset, **inputs):
    with torch.inference_mode():
        return studio.nodes["PacelineOptimizePreset"].execute(model=studio.model, preset=preset, strict=True, **inputs)


def save(name, *steps):
    from paceline.optimizers.in_comfyui.structure.user_folder import user_folder

    save_recipe(Recipe(name, steps), user_folder("presets", f"{name}.json"))


def test_a_preset_is_its_nodes_one_after_the_other(studio):
    model, vae, report = apply(studio, "balanced").result
    by_hand = studio.run("PacelineSetAttentionProcessor", model=studio.model, backend="auto")
    by_hand = studio.tome(by_hand, preset="quality")
    assert torch.equal(studio.sample(model), studio.sample(by_hand))
    assert vae is None
    assert report.splitlines()[0].startswith("balanced: 2 of 2 nodes applied.")
    assert "applied ApplyToMe(preset=quality)" in report


def test_steps_are_left_out_only_where_somebody_asks(studio):
    kinds = {}
    for preset in ("lossless", "balanced", "fast"):
        for asked in (False, True):
            report = apply(studio, preset, reuse_steps=asked).result[2]
            kinds[preset, asked] = "ReuseSteps" in report
    assert kinds == {key: key in (("balanced", True), ("fast", True)) for key in kinds}
    schema = studio.nodes["PacelineOptimizePreset"].define_schema()
    # A workflow from before has no value for it, and the frontend puts the default in its place.
    assert next(entry for entry in schema.inputs if entry.id == "reuse_steps").default is False


def test_a_model_that_is_in_int8_already_is_not_quantized_again_and_that_is_said(studio):
    quantized = studio.run("PacelineQuantizeInt8", model=studio.model, **TINY)
    said = "The model has int8 weights already, so Quantize int8 is not among the steps."
    reports = [
        studio.nodes["PacelineOptimizePreset"].execute(model=model, preset=preset).result[2]
        for model, preset in ((quantized, "fast"), (studio.model, "fast"), (quantized, "balanced"))
    ]
    assert [said in report for report in reports] == [True, False, False]


def test_a_tuned_preset_is_listed_and_applied(studio):
    steps = (Step("PacelineApplyToMe", {"preset": "custom", "method": "merge", "ratio": 0.5}),)
    save("mine", *steps)
    node = studio.nodes["PacelineOptimizePreset"]
    inputs = {entry.id: entry for entry in node.define_schema().inputs}
    assert inputs["preset"].options == ["lossless", "balanced", "fast", "mine"]
    result = apply(studio, "mine")
    assert torch.equal(studio.sample(result.result[0]), studio.sample(studio.tome(studio.model, ratio=0.5)))
    # What the front end needs to turn it into single nodes.
    assert result.ui["paceline_steps"] == [{"node": step.node, "inputs": dict(step.inputs)} for step in steps]
    json.dumps(result.ui)


def test_what_cannot_help_is_left_out_with_the_reason(studio):
    save("hopeful", Step("PacelineSetAttentionProcessor", {"backend": "sage"}), Step("PacelineApplyToMe"),
         Step("PacelineCompileVAE"))  # fmt: skip
    report = apply(studio, "hopeful").result[2]
    assert report.startswith("hopeful: 1 of 3 nodes applied.")
    assert "left out Compile VAE: no vae is connected" in report
    assert "left out Set Attention Processor: " in report
    save("hopeless", Step("PacelineSetAttentionProcessor", {"backend": "sage"}))
    with pytest.raises(UnsupportedModel, match="Nothing in the preset hopeless can be applied here: Set Attention"):
        apply(studio, "hopeless")


def test_built_in_recipes_suit_the_machine(comfy):
    from paceline.service.apply_recipe import BUILT_IN, Machine, built_in_recipe

    def nodes(name, **machine):
        return [step.node for step in built_in_recipe(name, Machine(**machine)).steps]

    for name in BUILT_IN:
        assert not any("Compile" in node for node in nodes(name, device="cpu", can_compile=True))
        assert "PacelineCompileUNet" in nodes(name, device="cuda", can_compile=True)
        assert "PacelineCompileUNet" not in nodes(name, device="cuda", can_compile=False)
    assert "PacelineApplyToMe" not in nodes("lossless", device="cuda", can_compile=True)
    assert "PacelineApplyToMe" in nodes("fast", device="cpu")
    reusing = [step.node for step in built_in_recipe("fast", Machine("cpu"), reuse_steps=True).steps]
    assert reusing == ["PacelineSetAttentionProcessor", "PacelineReuseSteps"]
    assert "PacelineQuantizeInt8" in nodes("fast", device="cuda", fast_int8=True)
    assert "PacelineQuantizeInt8" not in nodes("balanced", device="cuda", fast_int8=True)
    with pytest.raises(InvalidSetting, match="one of: lossless, balanced, fast"):
        built_in_recipe("faster", Machine("cpu"))


def test_all_techniques_of_the_node_report_in_one_message(studio, monkeypatch):
    from paceline.optimizers.in_comfyui.run import comfy_technique as technique
    from paceline.service import apply_recipe as recipes

    told = []
    for module in (technique, recipes):
        monkeypatch.setattr(module, "announce", lambda node, summary, title: told.append((node, summary)))
    monkeypatch.setattr(studio.nodes["PacelineOptimizePreset"], "node_id", classmethod(lambda cls: "7"))
    model = apply(studio, "balanced").result[0]
    assert {(node, summary.state) for node, summary in told} == {("7", "waiting")}
    told.clear()
    studio.sample(model)
    assert [(node, summary.state) for node, summary in told] == [("7", "working"), ("7", "partly")]
    summary = told[-1][1]
    assert summary.state == "partly"  # ComfyUI's own attention is sdpa already
    assert summary.text == "1 of 2 active: Apply ToMe"
    assert any(line.startswith("Apply ToMe: active in ") for line in summary.details)
    assert any(line.startswith("Set Attention Processor: ") for line in summary.details)
    # One of another node keeps its own message.
    told.clear()
    studio.sample(studio.attention(model, "vanilla"))
    assert sorted(str(node) for node, summary in told if summary.state not in ("waiting", "working")) == ["7", "None"]


def test_a_vae_goes_through_the_same_node(studio, comfy):
    vae = vaes.taesd()
    save("both", Step("PacelineApplyToMe"), Step("PacelineCompileVAE", {"backend": "eager"}))
    _, compiled, report = apply(studio, "both", vae=vae).result
    assert report.startswith("both: 2 of 2")
    assert compiled is not vae
    from paceline.optimizers.in_comfyui.targets.method_proxy import stack_on

    assert [technique.title for technique in stack_on(compiled).techniques] == ["Compile VAE"]
    assert stack_on(vae).techniques == ()
