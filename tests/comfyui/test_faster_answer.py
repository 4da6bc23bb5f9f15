"""The answer before any run: where the time of the last picture went, and what the workflow has of its own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from comfy_host import vaes
from executing import node
from faster_prompts import ask, job_of, on_device, plain
from paceline.measure.replay import Decoding
from paceline.service.faster import levers
from paceline.service.faster.kept_runs import Ended, KeptRuns, Trial, kept_run
from paceline.service.faster.workflow import Workflow

PROMPT = plain(Path("x.safetensors"))


def ended(kept: Any, prompt: Any = PROMPT, loaded: bool = False, again: str = "", brief: float = 0.0) -> None:
    """Keep a run of a workflow, with seconds of nodes that are so brief that none is told of."""
    parts = {"samplingRun": {"5": 6.0}, "decoding": {"6": 2.0}, "saving": {"7": 0.01}, "textEncoding": {"3": 1.0}}
    parts |= {"loading": {"1": 1.0}} if loaded or again else {}
    seconds = {kind: sum(nodes.values()) for kind, nodes in parts.items()} | {"otherNodes": brief}
    sent = {"prompt_id": "one", "seconds": seconds, "loaded": loaded, "parts": parts, "again": again}
    sent["nodes"] = [id for nodes in parts.values() for id in nodes]
    kept.add(kept_run(Ended.read(sent), Workflow.read(prompt)), str(len(kept.read())))


@pytest.fixture
def kept(comfyui, user_folder) -> Any:
    return KeptRuns()


def time_of(prompt: dict[str, Any], choice: str = "fast") -> Any:
    return ask(do="look", prompt=prompt, choice=choice)["time"]


def rows(choice: str = "fast") -> dict[tuple[str, str], tuple[float, str]]:
    parts = time_of(PROMPT, choice)["parts"]
    return {(one["kind"], one["name"]): (one["seconds"], one["remedy"]["text"]) for one in parts}


def test_a_workflow_that_never_ran_has_no_answer_yet(kept):
    assert time_of(PROMPT) is None
    ended(kept, plain(Path("x.safetensors"), steps=7))
    assert time_of(PROMPT) is None, "another workflow's"


def test_the_last_run_is_the_answer_each_part_with_what_acts_on_it(reads, kept):
    ended(kept, plain(Path("x.safetensors"), "a whale", seed=3), loaded=True)
    as_run = plain(Path("x.safetensors"), cfg=7)  # ComfyUI makes 7.0 of the page's 7
    ended(kept, as_run)
    assert time_of(PROMPT)["sentence"]["text"] == "The last picture took 9.01 s (2 pictures: 9.01 to 10 s)"
    found = rows()
    assert [kind for kind, _ in found] == ["samplingRun", "decoding", "textEncoding", "otherNodes"]
    assert (found["samplingRun", "KSampler"][0], found["otherNodes", ""][0]) == (6.0, 0.01)
    reads(found["samplingRun", "KSampler"][1], found["textEncoding", ""][1], found["otherNodes", ""][1])
    ended(kept, brief=0.4)  # of nodes that are so brief that none is told of
    assert time_of(PROMPT)["sentence"]["text"] == "The last picture took 9.41 s (3 pictures: 9.01 to 10 s)"


def test_what_is_named_by_no_node_stands_in_one_row(comfyui):
    from paceline.service.faster.look import RunTime
    from paceline.service.faster.workflow import Workflow

    parts = {"samplingRun": {"5": 6.0}, "decoding": {"6": 0.01}, "otherNodes": {"": 2.0, "gone": 1.0, "3": 1.0}}
    rows = RunTime(Workflow.read(PROMPT), parts, (), ()).payload("")["parts"]
    found = [(one["kind"], one["name"], one["seconds"]) for one in rows]
    assert found[0] == ("samplingRun", "KSampler", 6.0) and len(found) == 3
    assert found[1] == ("otherNodes", "", pytest.approx(3.01)) and found[2][2] == 1.0 and found[2][1]


def test_what_was_no_gain_is_said_with_its_day_and_is_not_worth_a_trial(kept):
    ended(kept)
    slow = Trial("0", "Apply ToMe", "fast", "Apply ToMe: 0.87x as fast here, which is no gain.")
    kept.note(Workflow.read(PROMPT), [slow])
    ended(kept)
    day = kept.read()[0].when[:10]
    assert rows()["samplingRun", "KSampler"] == (6.0, f"Can be tried: Reuse Steps. {slow.said} ({day})")
    assert rows(choice="balanced")["samplingRun", "KSampler"][1] == "Can be tried: Apply ToMe, Reuse Steps."


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_of_a_vae_is_said_what_acts_on_it(reads, kept, monkeypatch, device):
    on_device(monkeypatch, device, can_compile=True)
    ended(kept)
    reads(rows()["decoding", ""][1])


def test_what_is_known_of_a_part_is_said(kept):
    why = "Its weights are here again, as another model took their place."
    ended(kept, loaded=True)
    assert "files are read once" in rows()["loading", ""][1]
    ended(kept, again=why)
    assert rows()["loading", ""][1] == why


def switched(turbo: bool) -> dict[str, Any]:
    """Return a workflow with a switch of its own between 20 steps and 4, as core's templates have it."""
    from nodes import NODE_CLASS_MAPPINGS

    if "ComfySwitchNode" not in NODE_CLASS_MAPPINGS:
        pytest.skip("this ComfyUI has no switch")
    prompt = plain(Path("x.safetensors"))
    prompt["20"], prompt["4s"] = node("PrimitiveInt", value=20), node("PrimitiveInt", value=4)
    prompt["turbo"] = node("PrimitiveBoolean", value=turbo) | {"_meta": {"title": "Turbo LoRA"}}
    prompt["steps"] = node("ComfySwitchNode", switch=["turbo", 0], on_false=["20", 0], on_true=["4s", 0])
    prompt["5"]["inputs"]["steps"] = ["steps", 0]
    return prompt


def test_a_switch_of_the_workflow_that_takes_fewer_steps_is_found(kept):
    told = "This workflow has a switch: with Turbo LoRA on it takes 4 steps instead of 20."
    assert told in said_before(switched(False))
    outside = said_before(switched(False), names={"turbo.value": "enable_turbo"})
    assert told.replace("Turbo LoRA", "enable_turbo") in outside, "as the widget of the subgraph around it is called"
    assert not any("has a switch" in line for line in said_before(switched(True)) + said_before(PROMPT))
    (lever,) = ask(do="look", prompt=switched(False), choice="fast")["levers"]
    assert lever["sets"] == [{"node": "turbo", "input": "value", "value": True}]


def test_the_answer_says_again_what_the_workflow_has_of_its_own(kept):
    prompt = switched(False)
    job = job_of(ask(do="run", prompt=prompt, choice="fast"))
    job.measured = {"samplingRun": {"5": 1.0}}
    assert job.answer()["levers"] == ask(do="look", prompt=prompt, choice="fast")["levers"] != []


@pytest.fixture
def files(comfyui, monkeypatch):
    """Files in ComfyUI's folders of models, by folder."""
    import folder_paths

    there = {"loras": ["turbo_4steps.safetensors", "style.safetensors"]}
    there["checkpoints"] = ["x_bf16.safetensors", "X-fp8_e4m3fn_scaled.safetensors", "y_int8.safetensors"]
    monkeypatch.setattr(folder_paths, "get_filename_list", lambda folder: there.get(folder, []))


def said_before(prompt: dict[str, Any], **asked: Any) -> list[str]:
    state = ask(do="look", prompt=prompt, choice="fast", **asked)
    return [line["text"] for line in [*(lever["said"] for lever in state["levers"]), *state["lines"]]]


def test_a_turbo_lora_that_is_bypassed_is_told(kept, files):
    off = {"id": "9", "type": "LoraLoaderModelOnly", "title": "Turbo", "values": ["turbo_4steps.safetensors"]}
    told = "Turbo is bypassed. By its name, its LoRA turbo_4steps.safetensors is for 4 steps; this workflow takes"
    (lever,) = ask(do="look", prompt=PROMPT, choice="fast", bypassed=[off])["levers"]
    assert lever["said"]["text"] == f"{told} 20. It is tried with 4 steps and cfg 1."
    sets = [(one["node"], one["input"], one["value"]) for one in lever["sets"]]
    assert sets == [("9", "", True), ("5", "steps", 4), ("5", "cfg", 1.0)]
    two = PROMPT | {"other": node("BasicScheduler", steps=8)}
    (lever,) = ask(do="look", prompt=two, choice="fast", bypassed=[off])["levers"]
    assert lever["said"]["text"] == f"{told} 20." and lever["sets"] == [], "a person says which of them"
    few = plain(Path("x.safetensors"), steps=4)
    others = [off | {"values": [name]} for name in ("style.safetensors", "none_4steps.pt")] + [
        off | {"type": "VAELoader"}
    ]
    for prompt, bypassed in ((few, [off]), (PROMPT, others)):
        assert not any("is bypassed" in line for line in said_before(prompt, bypassed=bypassed))


def test_a_file_with_fewer_bits_beside_the_one_that_is_loaded_is_told(kept, files, monkeypatch):
    (line,) = [line for line in said_before(plain(Path("x_bf16.safetensors"))) if "in fewer bits" in line]
    same = "By its name, X-fp8_e4m3fn_scaled.safetensors is the same model as x_bf16.safetensors in fewer bits."
    assert line.startswith(same)
    for loaded in ("X-fp8_e4m3fn_scaled.safetensors", "y_int8.safetensors", "z.safetensors"):
        assert not any("in fewer bits" in line for line in said_before(plain(Path(loaded))))


def test_tiles_are_needless_where_the_whole_fits(comfyui, monkeypatch):
    import comfy.model_management

    monkeypatch.setattr(comfy.model_management, "get_free_memory", lambda device: 8e9)

    tiled = PROMPT | {"6": node("VAEDecodeTiled", samples=["5", 0], vae=["1", 2], tile_size=512, temporal_size=64)}
    workflow = Workflow.read(tiled)

    def found(method: str = "decode_tiled", needed: float = 3e9, axes: int = 4, **more: Any) -> list[Any]:
        vae = SimpleNamespace(memory_used_decode=lambda shape, dtype: needed, vae_dtype=None, device=None, **more)
        decoding = Decoding("1", vae, method, torch.zeros([1] * axes), 1.0)
        return [*levers.needless_tiles(workflow, [(workflow.vae_links[0], decoding)])]

    (picture,), (video,) = found(), found(axes=5)
    assert "The whole picture needs about 3 GB by ComfyUI's estimate, and 8 GB are free" in picture.said
    assert picture.sets == () and video.said == f"{picture.said} It is tried in a single tile."
    assert video.sets == (("6", "tile_size", 4096), ("6", "temporal_size", 4096))
    assert found("decode") == found(needed=9e9) == found(handles_tiling=True) == []


def test_a_video_in_the_largest_tile_is_decoded_at_once(comfyui, core_node):
    vae, calls = vaes.wan(), []
    decode = vae.first_stage_model.decode
    vae.first_stage_model.decode = lambda *given, **named: (calls.append(1), decode(*given, **named))[1]
    latent = {"samples": torch.zeros(1, 16, 3, 10, 10)}
    counts = []
    for sizes in ({"tile_size": 64, "temporal_size": 8}, {"tile_size": 4096, "temporal_size": 4096}):
        with torch.inference_mode():
            core_node("nodes", "VAEDecodeTiled", vae=vae, samples=latent, **sizes, overlap=16, temporal_overlap=4)
        counts.append(len(calls))
        calls.clear()
    assert counts[0] > counts[1] == 1


def test_what_is_loaded_is_known_as_it_is(comfyui, monkeypatch):
    def said(patched: int) -> list[str]:
        one = SimpleNamespace(model=torch.nn.Linear(2, 2), lowvram_patch_counter=lambda: patched)
        monkeypatch.setattr(levers, "loaded_patchers", lambda: [one])
        return [str(line) for line in levers.of_loaded_models()]

    assert said(0) == []
    (line,) = said(7)
    assert line.startswith("Linear does not fit on the device, so each step applies its LoRAs again in 7 layers.")
