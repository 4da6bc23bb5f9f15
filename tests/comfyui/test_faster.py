"""What *Make this workflow faster* finds in a prompt, and how a trial goes on from its findings."""

from __future__ import annotations

import copy
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
    sent = {"prompt": prompt, "name": "model", "receivers": [{"node": "5"}], "chain": list(chain), "choice": "balanced"}
    return trial_payload(sent | {"findings": findings} | more)


def test_a_trial_keeps_what_is_faster_and_good_and_measures_the_rest_against_it():
    ours = {name: {"class_type": "PacelineApplyToMe", "inputs": {"model": ["2", 0]}} for name in ("a", "b", "c")}
    prompt = prompt_with(**ours)
    chain = ("a", "b", "c")
    first = trial(prompt, [], chain)
    assert first["node"] == "a" and first["measurable"]
    compare = first["prompt"]["paceline_trial"]["inputs"]
    assert compare["model_baseline"] == ["2", 0]
    assert first["prompt"][compare["model_optimized"][0]]["class_type"] == "PacelineApplyToMe"
    assert compare["runs"] == 3 and compare["seed"] == 7 and compare["vae"] == ["1", 2]
    assert set(first["prompt"]) >= {"1", "2", "3", "4"} and "7" not in first["prompt"]

    noisy = trial(prompt, [finding("unknown")], chain)
    assert noisy["node"] == "a" and noisy["prompt"]["paceline_trial"]["inputs"]["runs"] == 9

    findings = [finding("faster"), finding("faster", quality="visible"), finding("faster")]
    together = trial(prompt, findings, chain)
    assert together["node"] == "" and [one["kept"] for one in together["judged"]] == [True, False, True]
    end = trial(prompt, [*findings, finding("faster", seconds=(4.0, 1.0))], chain)
    assert end["prompt"] is None and end["best"]["speedup"] == 4.0
    assert (end["once"], end["saves"]) == (60.0, 60.0)  # 2 x 30 s; 20 steps of 3 s
    assert trial(prompt, [finding("slower")] * 3, chain)["best"] is None


GUIDERS = {
    "CFGGuider": {"positive": ["3", 0], "negative": ["3", 0], "cfg": 5.0},
    "BasicGuider": {"conditioning": ["3", 0]},
    "DualCFGGuider": {"cond1": ["3", 0], "cond2": ["3", 0], "negative": ["3", 0], "cfg_conds": 6.0},
}


@pytest.mark.parametrize(("guider", "cfg"), [("CFGGuider", 5.0), ("BasicGuider", 1.0), ("DualCFGGuider", 6.0)])
def test_samplers_with_a_guider_are_measured(guider, cfg):
    custom = {"noise": ["9", 0], "guider": ["a", 0], "sampler": ["b", 0], "sigmas": ["c", 0], "latent_image": ["4", 0]}
    prompt = prompt_with(
        **{
            "5": {"class_type": "SamplerCustomAdvanced", "inputs": custom},
            "8": {"class_type": "PacelineApplyToMe", "inputs": {"model": ["1", 0]}},
            "9": {"class_type": "RandomNoise", "inputs": {"noise_seed": 11}},
            "a": {"class_type": guider, "inputs": {"model": ["8", 0], **GUIDERS[guider]}},
            "b": {"class_type": "KSamplerSelect", "inputs": {"sampler_name": "heun"}},
            "c": {"class_type": "BasicScheduler", "inputs": {"model": ["1", 0], "scheduler": "simple", "steps": 4}},
        }
    )
    found = trial(prompt, [], ("8",), receivers=[{"node": "a"}])
    inputs = found["prompt"]["paceline_trial"]["inputs"]
    assert {name: inputs[name] for name in ("cfg", "sampler_name", "scheduler", "steps", "seed", "vae")} == {
        "cfg": cfg, "sampler_name": "heun", "scheduler": "simple", "steps": 4, "seed": 11, "vae": ["1", 2],
    }  # fmt: skip
    assert inputs["positive"] == inputs["negative"] == ["3", 0]


def test_a_vae_is_measured_by_its_decoding():
    prompt = prompt_with(**{"8": {"class_type": "PacelineCompileVAE", "inputs": {"vae": ["1", 2]}}})
    found = trial(prompt, [], ("8",), name="vae", receivers=[{"node": "6"}])
    inputs = found["prompt"]["paceline_trial"]["inputs"]
    assert inputs["vae"] == ["1", 2]
    assert found["prompt"][inputs["vae_optimized"][0]]["class_type"] == "PacelineCompileVAE"
    assert inputs["model_baseline"] == ["2", 0] and "model_optimized" not in inputs


def with_controlnets() -> dict[str, Any]:
    """Two ControlNets in a row on both conditionings, of which ours compiles the first, and our node on the model."""

    def apply(control_net: list[Any], positive: list[Any], negative: list[Any]) -> dict[str, Any]:
        given = {"control_net": control_net, "positive": positive, "negative": negative, "image": ["d", 0]}
        return {"class_type": "ControlNetApplyAdvanced", "inputs": {**given, "strength": 1.0}}

    return prompt_with(
        **{
            "8": {"class_type": "ControlNetLoader", "inputs": {"control_net_name": "x"}},
            "9": {"class_type": "PacelineCompileControlNet", "inputs": {"control_net": ["8", 0]}},
            "a": apply(["9", 0], ["3", 0], ["3", 0]),
            "b": apply(["8", 0], ["a", 0], ["a", 1]),
            "c": {"class_type": "PacelineApplyToMe", "inputs": {"model": ["1", 0]}},
            "d": {"class_type": "LoadImage", "inputs": {"image": "x.png"}},
            "5": {**PROMPT["5"], "inputs": {**PROMPT["5"]["inputs"], **{"model": ["c", 0]}, "positive": ["b", 0]}},
        }
    )


def test_a_controlnet_is_measured_with_two_conditionings():
    prompt = with_controlnets()
    found = trial(prompt, [], ("9",), name="control_net", receivers=[{"node": "a"}])["prompt"]
    inputs = found["paceline_trial"]["inputs"]
    assert inputs["model_baseline"] == ["1", 0] and "model_optimized" not in inputs  # without nodes of ours
    assert inputs["negative"] == inputs["negative_optimized"] == ["3", 0]
    for side, control_net in (("positive", ["8", 0]), ("positive_optimized", ["paceline_trial_b_9", 0])):
        second = found[inputs[side][0]]
        assert second["class_type"] == "ControlNetApplyAdvanced" and second["inputs"]["control_net"] == ["8", 0]
        first = found[second["inputs"]["positive"][0]]
        assert first["inputs"] == {**prompt["a"]["inputs"], "control_net": control_net}
    assert found["paceline_trial_b_9"] == prompt["9"]
    assert not trial(prompt, [], ("9",), name="control_net", receivers=[{"node": "7"}])["measurable"]


def test_a_model_is_measured_with_the_controlnets_of_the_workflow_on_both_sides():
    prompt = with_controlnets()
    found = trial(prompt, [], ("c",))["prompt"]
    inputs = found["paceline_trial"]["inputs"]
    assert (inputs["model_baseline"], inputs["positive"]) == (["1", 0], ["b", 0])
    assert "positive_optimized" not in inputs
    assert {name: found[name] for name in ("8", "9", "a", "b")} == {name: prompt[name] for name in ("8", "9", "a", "b")}


@pytest.mark.parametrize("sent", [None, [], {}, {"prompt": PROMPT}, {"prompt": PROMPT, "chain": 3}])
def test_a_trial_that_cannot_be_read_is_refused(sent):
    with pytest.raises(InvalidSetting, match="This trial cannot be read"):
        trial_payload(sent)
