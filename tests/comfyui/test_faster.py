"""What *Make this workflow faster* finds in a prompt, and how a trial goes on from its findings."""

from __future__ import annotations

import copy
import re
from importlib import import_module
from typing import Any

import pytest
from faster import PROMPT, finding
from paceline.core.errors import InvalidSetting


@pytest.fixture(autouse=True)
def nodes_of_comfyui(comfy: Any) -> None:
    import_module("nodes")


def advice_payload(prompt: Any) -> dict[str, Any]:
    from paceline.nodes import NODES
    from paceline.server import advice

    return advice.advice_payload(prompt, NODES)


def trial_payload(sent: Any) -> dict[str, Any]:
    from paceline.server import trial

    return trial.trial_payload(sent)


def prompt_with(**changes: dict[str, Any]) -> dict[str, Any]:
    return copy.deepcopy(PROMPT) | changes


def plans(prompt: dict[str, Any], name: str = "model") -> dict[str, Any]:
    (wire,) = [wire for wire in advice_payload(prompt)["wires"] if wire["name"] == name]
    return wire["plans"]


def test_it_finds_the_wires_and_what_each_choice_inserts_there():
    advice = advice_payload(PROMPT)
    assert [(wire["name"], wire["receivers"]) for wire in advice["wires"]] == [
        ("model", [{"node": "5", "input": "model"}]),
        ("vae", [{"node": "6", "input": "vae"}]),
    ]
    found = plans(PROMPT)
    assert [step["node"] for step in found["lossless"]["steps"]] == ["PacelineSetAttentionProcessor"]
    assert [step["node"] for step in found["fast"]["steps"]] == ["PacelineApplyToMe", "PacelineSetAttentionProcessor"]


def test_a_cache_of_others_becomes_ours_only_where_the_picture_may_change():
    found = plans(PROMPT)
    assert found["lossless"]["foreign"] == []
    assert found["fast"]["foreign"] == [{"node": "2", "to": "PacelineReuseSteps", "inputs": {}}]


def test_compiling_reaches_models_vaes_and_controlnets(monkeypatch):
    from paceline.server import advice
    from paceline.server.built_in_presets import Machine

    monkeypatch.setattr(advice, "machine_here", lambda: Machine("cuda", can_compile=True))
    apply = {"control_net": ["8", 0], "positive": ["3", 0], "negative": ["3", 0], "image": ["7", 0], "strength": 1.0}
    prompt = prompt_with(
        **{
            "8": {"class_type": "ControlNetLoader", "inputs": {"control_net_name": "x"}},
            "9": {"class_type": "ControlNetApplyAdvanced", "inputs": apply},
        }
    )
    inserted = {
        name: [step["node"] for step in plans(prompt, name)["lossless"]["steps"]]
        for name in ("model", "vae", "control_net")
    }
    assert inserted == {
        "model": ["PacelineSetAttentionProcessor", "PacelineCompileUNet"],
        "vae": ["PacelineCompileVAE"],
        "control_net": ["PacelineCompileControlNet"],
    }


def custom(**changes: dict[str, Any]) -> dict[str, Any]:
    """The workflow with a sampler that gets guider and noise levels from other nodes."""
    return prompt_with(
        **{
            "5": {"class_type": "SamplerCustomAdvanced", "inputs": {"guider": ["guider", 0], "sigmas": ["sigmas", 0]}},
            "guider": {"class_type": "BasicGuider", "inputs": {"model": ["2", 0], "conditioning": ["3", 0]}},
            "number": {"class_type": "PrimitiveInt", "inputs": {"value": 4}},
            "many": {"class_type": "PrimitiveInt", "inputs": {"value": 20}},
            "turbo": {"class_type": "PrimitiveBoolean", "inputs": {"value": True}},
            "switch": {
                "class_type": "ComfySwitchNode",
                "inputs": {"switch": ["turbo", 0], "on_true": ["number", 0], "on_false": ["many", 0]},
            },
        }
        | changes
    )


SCHEDULES = {
    "ManualSigmas": ({"sigmas": "1., 0.9, 0.5, 0.2, 0."}, 4),
    "LTXVScheduler": ({"steps": 8, "max_shift": 2.05, "base_shift": 0.95, "stretch": True, "terminal": 0.1}, 8),
    "BasicScheduler": ({"model": ["2", 0], "scheduler": "simple", "steps": ["switch", 0], "denoise": 1.0}, 4),
    "Flux2Scheduler": ({"steps": 20, "width": 64, "height": 64}, None),
}


@pytest.mark.parametrize(("name", "about"), SCHEDULES.items())
def test_models_of_few_steps_get_no_reuse_steps(comfyui, name, about):
    inputs, few = about
    prompt = custom(sigmas={"class_type": name, "inputs": inputs})
    (wire,) = [wire for wire in advice_payload(prompt)["wires"] if wire["name"] == "model"]
    inserted = {node["node"] for plan in wire["plans"].values() for node in plan["steps"]}
    assert {"PacelineApplyToMe", "PacelineSetAttentionProcessor"} <= inserted
    assert all(
        (plan["foreign"] == []) == (few is not None) for name, plan in wire["plans"].items() if name != "lossless"
    )
    sentence = f"Reuse Steps is left out: of so few steps ({few}) each changes the picture too much."
    assert wire["notes"] == ([sentence] if few else [])


def test_steps_that_are_not_known_before_a_run_are_not_few(comfyui):
    text = {"class_type": "CLIPTextEncode", "inputs": {"clip": ["1", 1], "text": "4"}}
    prompt = custom(sigmas={"class_type": "BasicScheduler", "inputs": {"steps": ["text", 0]}}, text=text)
    (wire,) = [wire for wire in advice_payload(prompt)["wires"] if wire["name"] == "model"]
    assert wire["notes"] == [] and wire["plans"]["fast"]["foreign"]


@pytest.mark.parametrize(
    ("file", "steps", "quantized"), [("x", 4, True), ("x", 20, False), ("z_int8.safetensors", 4, False)]
)
def test_int8_is_tried_where_steps_are_few_and_the_file_has_none(comfyui, monkeypatch, file, steps, quantized):
    from paceline.server import advice
    from paceline.server.built_in_presets import Machine

    monkeypatch.setattr(advice, "machine_here", lambda: Machine("cuda", can_compile=True))
    prompt = prompt_with()
    prompt["1"]["inputs"]["ckpt_name"], prompt["5"]["inputs"]["steps"] = file, steps
    (wire,) = [wire for wire in advice_payload(prompt)["wires"] if wire["name"] == "model"]
    assert any(step["node"] == "PacelineQuantizeInt8" for step in wire["plans"]["fast"]["steps"]) == quantized
    said = [note for note in wire["notes"] if "int8" in note]
    named = [f"Quantize int8 is left out: {file} has int8 weights already, by its name."]
    assert said == (named if "int8" in file else [])


def test_reuse_steps_is_not_put_on_the_second_model_of_a_guider_where_it_would_refuse(comfyui):
    second = {"class_type": "UNETLoader", "inputs": {"unet_name": "x", "weight_dtype": "default"}}
    cache = prompt_with()["2"] | {"inputs": {**PROMPT["2"]["inputs"], "model": ["second", 0]}}
    guided = {"model": ["1", 0], "positive": ["3", 0], "cfg": 4.0, "model_negative": ["cache", 0], "negative": ["3", 0]}
    guider = {"class_type": "DualModelGuider", "inputs": guided}
    sigmas = {"class_type": "ManualSigmas", "inputs": {"sigmas": ", ".join(str(20.0 - step) for step in range(21))}}
    wires = advice_payload(custom(second=second, cache=cache, guider=guider, sigmas=sigmas))["wires"]
    found = {wire["receivers"][0]["input"]: wire for wire in wires if wire["name"] == "model"}
    named = {
        name: [step["node"] for step in wire["plans"]["fast"]["steps"]] + wire["plans"]["fast"]["foreign"]
        for name, wire in found.items()
    }
    others = ["PacelineApplyToMe", "PacelineSetAttentionProcessor"]
    assert named == {"model": [*others, "PacelineReuseSteps"], "model_negative": others}
    sentence = "Reuse Steps is left out: the first model of DualModelGuider decides for both."
    assert [wire["notes"] for wire in found.values()] == [[], [sentence]]


@pytest.mark.parametrize(("turbo", "converted"), [(True, True), (False, False), ("text", False)])
def test_the_way_to_the_loader_goes_through_the_side_of_a_switch_that_is_chosen(comfyui, turbo, converted):
    inputs = {"switch": ["turbo", 0], "on_true": ["2", 0], "on_false": ["1", 0]}
    prompt = custom(
        models={"class_type": "ComfySwitchNode", "inputs": inputs},
        guider={"class_type": "BasicGuider", "inputs": {"model": ["models", 0], "conditioning": ["3", 0]}},
        sigmas={"class_type": "Flux2Scheduler", "inputs": {"steps": 20, "width": 64, "height": 64}},
    )
    prompt["turbo"]["inputs"]["value"] = turbo
    if turbo == "text":  # not known before the run
        prompt["turbo"] = {"class_type": "CLIPTextEncode", "inputs": {"clip": ["1", 1], "text": "true"}}
    assert [one["node"] for one in plans(prompt)["fast"]["foreign"]] == (["2"] if converted else [])


def test_nothing_is_put_on_a_vae_that_only_makes_sound(comfyui):
    heard = {"class_type": "LTXVAudioVAEDecode", "inputs": {"samples": ["5", 0], "audio_vae": ["8", 0]}}
    prompt = prompt_with(**{"8": {"class_type": "VAELoader", "inputs": {"vae_name": "sound"}}, "9": heard})
    assert [wire["receivers"] for wire in advice_payload(prompt)["wires"]] == [
        [{"node": "5", "input": "model"}],
        [{"node": "6", "input": "vae"}],
    ]


def test_on_a_gpu_the_advice_names_the_number_of_tokens_from_which_apply_tome_pays(monkeypatch):
    from paceline.optimizers.token_merging.automatic import Automatic
    from paceline.server import advice
    from paceline.server.built_in_presets import Machine

    monkeypatch.setattr(advice, "machine_here", lambda: Machine("cuda"))
    (wire,) = [wire for wire in advice_payload(PROMPT)["wires"] if wire["name"] == "model"]
    (said,) = wire["notes"]
    tokens, width, height = (int(number) for number in re.findall(r"\d+", said))
    assert Automatic.for_block(tokens, "cuda", False) and not Automatic.for_block(tokens - 1, "cuda", False)
    assert width * height == tokens * 16**2


def test_each_known_node_has_settings_that_ours_takes():
    from paceline.nodes import NODES
    from paceline.server.foreign import KNOWN, converted_inputs

    old = {"backend": "cudagraphs", "mode": "max-autotune", "dynamic": False, "fullgraph": True, "ratio": 0.4}
    compiled = {"mode": "reduce-overhead", "fullgraph": True, "dynamic": "false"}
    for node, conversion in KNOWN.items():
        inputs = converted_inputs(node, old | {"sage_attention": "auto"}, NODES)
        if conversion.to.startswith("PacelineCompile"):
            assert inputs == compiled, node
        elif conversion.to == "PacelineSetAttentionProcessor":
            assert inputs == {"backend": "sage" if "Sage" in node else "flash"}
        elif node == "TomePatchModel":
            assert inputs == {"preset": "custom", "method": "merge", "ratio": 0.4}


def test_what_is_no_prompt_is_refused_in_one_sentence():
    with pytest.raises(InvalidSetting, match=r"no workflow in the API format.*Export \(API\)"):
        advice_payload({"nodes": [], "links": []})


def trial(prompt: dict[str, Any], findings: list[Any], chain: tuple[str, ...], **more: Any) -> dict[str, Any]:
    sent = {"prompt": prompt, "name": "model", "chain": list(chain), "choice": "balanced"}
    return trial_payload(sent | {"findings": findings} | more)


def test_a_trial_keeps_what_is_faster_and_good_and_measures_the_rest_against_it(monkeypatch):
    from paceline.server import trial as server

    monkeypatch.setattr(server, "why_refused", lambda prompt, last: "")  # the checkpoint is not there
    before = {"a": "2", "b": "a", "c": "b"}
    ours = {
        name: {"class_type": "PacelineApplyToMe", "inputs": {"model": [origin, 0]}} for name, origin in before.items()
    }
    prompt = prompt_with(**ours)
    prompt["5"]["inputs"]["model"] = ["c", 0]
    chain = ("a", "b", "c")
    first = trial(prompt, [], chain)
    assert first["node"] == "a" and not first["why_not"]
    compare = first["prompt"]["paceline_trial"]["inputs"]
    assert compare["baseline"] == ["2", 0]
    assert first["prompt"][compare["optimized"][0]]["class_type"] == "PacelineApplyToMe"
    assert (compare["runs"], compare["most_runs"], compare["vae"]) == (3, 9, ["1", 2])
    assert set(first["prompt"]) >= {"1", "2", "3", "4"} and not {"5", "7"} & set(first["prompt"])

    noisy = trial(prompt, [finding("unknown")], chain)  # after as many rounds as there may be
    assert noisy["node"] == "b" and not noisy["judged"][0]["kept"]

    findings = [finding("faster"), finding("faster", quality="visible"), finding("faster")]
    together = trial(prompt, findings, chain)
    assert together["node"] == "" and [one["kept"] for one in together["judged"]] == [True, False, True]
    end = trial(prompt, [*findings, finding("faster", seconds=(4.0, 1.0))], chain)
    assert end["prompt"] is None and end["best"]["speedup"] == 4.0
    assert (end["once"], end["saves"]) == (60.0, 60.0)  # 2 x 30 s; 20 steps of 3 s
    assert trial(prompt, [finding("slower")] * 3, chain)["best"] is None


@pytest.mark.parametrize("sent", [None, [], {}, {"prompt": PROMPT}, {"prompt": PROMPT, "chain": 3}])
def test_a_trial_that_cannot_be_read_is_refused(sent):
    with pytest.raises(InvalidSetting, match="This trial cannot be read"):
        trial_payload(sent)
