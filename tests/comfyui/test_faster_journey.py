"""*Make this workflow faster* from the question to the proof, run by ComfyUI's executor."""

from __future__ import annotations

import copy
import re
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from executing import Executor, node
from faster_prompts import ask, job_of, on_device, with_other_attention
from paceline.measure.expect import ROUNDING, Probed
from paceline.measure.measure import SIDES
from paceline.optimizers.core.errors import InvalidSetting
from paceline.optimizers.in_comfyui.compilation import comfy_env
from paceline.service.comfyui import evaluating, probe
from paceline.service.faster import kept_runs
from paceline.service.faster.kept_runs import Ended, KeptRun, KeptRuns, facts_here, kept_run
from paceline.service.faster.proof import Proof
from paceline.service.faster.workflow import Workflow

STOPPED = "The run was stopped early, so more may be possible."


@pytest.fixture
def workflow(comfyui: Executor, icons: Any) -> dict[str, Any]:
    model, encode = icons
    sampling = {"seed": 3, "steps": 16, "cfg": 3.0, "sampler_name": "euler", "scheduler": "normal", "denoise": 1.0}
    links = {name: [name, 0] for name in ("model", "positive", "negative")}
    return {
        "model": comfyui.give("MODEL", "icons", model),
        "positive": comfyui.give("CONDITIONING", "heart", encode("red heart flat")),
        "negative": comfyui.give("CONDITIONING", "nothing", encode("")),
        "latent": comfyui.give("LATENT", "blank", {"samples": torch.zeros(1, 4, 16, 16)}),
        "sampler": node("KSampler", **links, latent_image=["latent", 0], **sampling),
        "save": node("PreviewAny", source=["sampler", 0]),
    }


def latent(comfyui: Executor, prompt: dict[str, Any], id: str = "sampler") -> torch.Tensor:
    return comfyui.value(prompt, [id, 0])["samples"]


def test_from_the_question_to_the_proof(comfyui, workflow):
    before, plain = copy.deepcopy(workflow), latent(comfyui, workflow)
    looked = ask(do="look", prompt=workflow, choice="fast")
    said = [line["text"] for line in looked["lines"]]
    assert said[0] == "Nothing was measured here yet: a run shows how much faster it can be."
    assert said[1] == "To be tried: Apply ToMe, Reuse Steps"
    assert (
        "Set Attention Processor is left out: ComfyUI's own attention is sdpa already, so it changes nothing." in said
    )

    began = ask(do="run", prompt=workflow, choice="fast")
    job = job_of(began)
    with pytest.raises(InvalidSetting, match="There is no offer"):
        ask(do="prove", job=job.id)
    assert torch.equal(latent(comfyui, began["prompt"]), plain)
    (sampling,) = job.observer.samplings
    sampling.loading_seconds, sampling.sampling_seconds = 0.0, 3.0  # however long this machine took
    probing = ask(do="next", job=began["job"], seconds={"samplingRun": 3.0, "decoding": 0.5})
    assert probing["phase"] == "probe" and probing["time"]["sentence"]["text"].startswith("This run took ")
    assert {"decoding", "samplingRun"} <= {part["kind"] for part in probing["time"]["parts"]}
    assert job.observer.bytes > 0
    comfyui.run(probing["prompt"])
    assert job.observer.bytes == 0  # nothing is kept for an answer that nobody asks for
    answer = ask(do="next", job=began["job"])
    assert answer["phase"] == "answer" and job.observer.bytes == 0 and answer["prompt"] is None
    assert [one.name for one in job.probed[0]] == ["Apply ToMe"]
    best = answer["offer"]
    assert "Reuse Steps" in best["label"] and best["expected"]["text"].startswith("expected ")
    low, likely, high = best["sampling_speedup"]
    assert low <= likely <= high and "measured" not in best

    kept = ask(do="keep", job=began["job"])["prompt"]
    (insert,) = best["inserts"]
    assert [step["node"] for step in insert["steps"]] == [kept[id]["class_type"] for id in kept if id not in workflow]
    assert insert["receivers"] == [{"node": "sampler", "input": "model"}]
    job.choice = "lossless"  # which allows less than was offered
    proved = ask(do="prove", job=began["job"])
    pairs, offered = [], best["label"]
    while proved["prompt"]:
        pairs.append(proved["prompt"])
        comfyui.run(proved["prompt"])
        proved = ask(do="next", job=began["job"])
        assert proved["offer"]["label"] == offered, "it stays in view"
        if len(pairs) == 1:  # work and distance, before anything is known of the time
            so_far = r"After 1 of at most 3 seeds: \d+% less work, difference .* a seed change at most\."
            assert re.fullmatch(so_far, proved["offer"]["measured"]["text"]) and proved["phase"] == "proof"
    measured = proved["offer"]["measured"]["text"]
    assert proved["phase"] == "proved" and re.match(r"Measured, steps of [23] pictures: ", measured)
    assert " a seed change" in measured
    assert "That is farther than you allowed." in measured and proved["offer"]["beyond"]
    assert proved["offer"]["picture"] is None  # no VAE makes pictures here
    with pytest.raises(AssertionError, match="This proof is not known any more"):
        comfyui.run({"trial": {"class_type": "_PacelineTrial", "inputs": {"job": began["job"], "proof": True}}})
    drawn = {name: latent(comfyui, prompt) for name, prompt in (("kept", kept), ("plain", workflow))}
    assert torch.equal(drawn["plain"], plain) and not torch.equal(drawn["kept"], plain)
    for seed, proving in enumerate(pairs):
        links = proving.pop("paceline_trial")["inputs"]
        seeded = copy.deepcopy(workflow)
        seeded["sampler"]["inputs"]["seed"] += seed
        shown = [latent(comfyui, proving, links[f"{side} {seed} 0"][0]) for side in SIDES]
        assert torch.equal(shown[0], latent(comfyui, seeded)) and not torch.equal(shown[1], shown[0])
    again = ask(do="prove", job=job.id)  # draws anew, though ComfyUI still has all of the first
    while again["prompt"]:
        comfyui.run(again["prompt"])
        again = ask(do="next", job=job.id)
    assert again["offer"]["measured"]["text"].startswith("Measured, steps of ")
    assert workflow == before


def test_a_proof_draws_what_leaving_out_late_levels_does_in_the_same_time(comfyui, workflow, monkeypatch):
    """With seconds of the test's own, so that the nodes are 1.67 times as fast: as that is clear, no third is drawn."""
    began = ask(do="run", prompt=workflow, choice="fast")
    comfyui.run(began["prompt"])
    comfyui.run(ask(do="next", job=began["job"])["prompt"])
    ask(do="next", job=began["job"])
    job, drawn = job_of(began), {}

    def draw(state: dict[str, Any], seeds: int) -> Proof:
        proof: Proof = job.proof
        with monkeypatch.context() as later:
            later.setattr(Proof, "judge", lambda *_: None)
            comfyui.run(state["prompt"])
        links = state["prompt"]["paceline_trial"]["inputs"]
        ids = {name: link[0] for name, link in links.items() if isinstance(link, list)}
        latents = {name: {"samples": latent(comfyui, state["prompt"], id)} for name, id in ids.items()}
        proof.observer.samplings = proof.observer.samplings[: 2 * seeds]  # without what was drawn for the latents
        for one in proof.observer.samplings:
            one.sampling_seconds = 2000.0 if one.link.startswith("baseline") else 1200.0
        with torch.inference_mode():
            proof.judge(latents, None)
        drawn.update(latents)
        return proof

    assert not draw(ask(do="prove", job=began["job"]), 1).over
    proof = draw(ask(do="next", job=began["job"]), 2)
    assert re.match(r"Measured, steps of 2 pictures: \d+% less work, .*\. 1.67x faster \(1.67 to 1.67\)\.", proof.text)
    first = next(one for one in proof.observer.samplings if one.link.startswith("baseline 0 "))
    with torch.inference_mode():
        again = first.again.sample(first.again.sampler, first.again.sigmas)
    assert torch.equal(again, drawn["baseline 0 0"]["samples"]), "all levels are the run once more"
    assert re.search(r"these nodes leaving out 7 of 16 noise levels gives \S+x, with a difference ", proof.text)


def test_a_stop_and_no_other_reason_is_said_of_what_was_not_tried(comfyui, workflow, monkeypatch):
    """As if each evaluation took minutes."""
    import comfy.model_management as management
    from paceline.service.faster import job as one_job

    monkeypatch.setattr(one_job, "SPARE", 0.0)
    monkeypatch.setattr(one_job, "monotonic", lambda: 1e9)  # so that its deadline never comes
    with_other_attention(monkeypatch)
    workflow["sampler"]["inputs"]["steps"] = 12
    began = ask(do="run", prompt=workflow, choice="fast")
    comfyui.run(began["prompt"])
    ask(do="next", job=began["job"])
    job = job_of(began)

    def say(share):
        if share > 0.06:  # the plain evaluations are the first of 19 stages
            raise management.InterruptProcessingException

    with pytest.raises(management.InterruptProcessingException), torch.inference_mode():
        job.probe(say)
    answer = ask(do="next", job=began["job"])
    assert any(one.state == "untried" for one in job.probed[0]) and answer["phase"] == "answer"
    said = [line["text"] for line in answer["lines"]]
    assert STOPPED in said and not any(part in one for one in said for part in ("tried before", "No change we know"))


@pytest.fixture
def compiling(comfyui, workflow, user_folder, monkeypatch):
    """Where Compile UNet would be tried: a function that returns the answer of a run whose steps took 9 s."""
    from paceline.service.faster import job as one_job

    on_device(monkeypatch, "cuda", can_compile=True)

    def answered(tried, pictures=20):
        began = ask(do="run", prompt=workflow, choice="lossless", pictures=pictures)
        job, known = job_of(began), Workflow.read(workflow)
        monkeypatch.setattr(one_job, "behind", tried)
        comfyui.run(began["prompt"])
        for one in job.observer.samplings:
            one.loading_seconds, one.sampling_seconds = 0.0, 9.0
        store, about, key = KeptRuns(), kept_runs.about(known), kept_runs.workflow_key(known)
        store.add(KeptRun("work", "now", {"steps": 9.0}, False, facts_here(), about, key), str(len(store.read())))
        comfyui.run(ask(do="next", job=began["job"], seconds={"samplingRun": 9.0})["prompt"])
        return ask(do="next", job=began["job"])

    return answered


def said_of_sampling(answer: dict[str, Any]) -> str:
    """Return what stands beside the sampler's time."""
    (said,) = [part["remedy"]["text"] for part in answer["time"]["parts"] if part["kind"] == "samplingRun"]
    return said


def test_what_compiling_wins_says_what_it_costs_and_from_which_picture_it_pays(compiling, monkeypatch):
    """As the trial of one block has found it: two seconds for each of two kinds, 1.5 times as fast."""
    from paceline.service.faster import job as one_job

    gains = Probed("Compile UNet", (1.4, 1.5, 1.6), clear=True, error=ROUNDING, points=1, once=4.0)
    monkeypatch.setattr(one_job, "probe", lambda _sampling, _ways, _say, found, _deadline: found.append(gains))
    offer = compiling(Mock())["offer"]
    assert offer["label"] == "Compile UNet" and offer["inserts"][0]["steps"][0]["node"] == "PacelineCompileUNet"
    cost = "costs 4 s once, and up to that after a restart; saves 3 s a picture: pays from picture 2 on"
    assert offer["expected"]["text"] == f"expected 1.5x (1.4 to 1.6); {cost}"
    answer = compiling(Mock(), pictures=1)
    assert answer["offer"] is None and said_of_sampling(answer) == f"Compile UNet: {cost}."


def test_what_was_given_up_once_is_not_tried_again(compiling, monkeypatch):
    from paceline.service.faster import job as one_job

    def compiles(executor, *args, **kwargs):
        comfy_env.watch(None, None)
        return executor(*args, **kwargs)

    def slow(_step, model, nodes):
        clone = model.clone()
        clone.add_wrapper_with_key("apply_model", "compiles", compiles)
        return clone

    with monkeypatch.context() as long_ago:
        for module in (one_job, probe, evaluating):
            long_ago.setattr(module, "monotonic", lambda: -1e9)
        said = said_of_sampling(compiling(slow))
    assert said == (
        "Compile UNet: compiling takes longer than the 30 s of this test; with 20 to draw, it pays if it saves more "
        "than 1.5 s a picture."
    )
    again = compiling(Mock(side_effect=AssertionError("it is tried")))
    assert "compiling took 30 s or more on this machine" in said_of_sampling(again)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_why_compiling_is_not_tried_is_said(reads, comfyui, workflow, monkeypatch, device):
    on_device(monkeypatch, device)
    said = [line["text"] for line in ask(do="look", prompt=workflow, choice="balanced")["lines"]]
    reads(*(line for line in said if line.startswith("Compile UNet")))


def test_the_next_click_knows_what_was_tried_offered_proved_and_kept(comfyui, workflow, user_folder):
    """Also where the run is kept after the answer, as a page can tell of it late."""
    known = Workflow.read(workflow)
    began = ask(do="run", prompt=workflow, choice="fast")
    comfyui.run(began["prompt"])
    job, parts = job_of(began), {"samplingRun": {"sampler": 3.0}}
    job.observer.samplings[0].loading_seconds, job.observer.samplings[0].sampling_seconds = 0.0, 3.0
    comfyui.run(ask(do="next", job=job.id, seconds={"samplingRun": 3.0})["prompt"])
    offer = ask(do="next", job=job.id)["offer"]
    assert KeptRuns().read() == []
    sent = {"prompt_id": "x", "seconds": {"samplingRun": 3.0}, "nodes": [*workflow], "loaded": False, "parts": parts}
    KeptRuns().add(kept_run(Ended.read(sent), known), "x")
    job.remember()

    def looked(choice="fast"):
        state = ask(do="look", prompt=workflow, choice=choice)
        (row,) = [part["remedy"]["text"] for part in state["time"]["parts"] if part["kind"] == "samplingRun"]
        return row, [line["text"] for line in state["lines"]]

    row, lines = looked()
    day = KeptRuns().read()[0].when[:10]
    assert f"Reuse Steps is offered. ({day})" in row and not re.match(r"Can be tried: [^.]*Reuse Steps", row)
    (told,) = [line for line in lines if line.startswith(f"{day}: {offer['label']}: expected ")]
    assert not any(line.startswith(day) for line in looked("balanced")[1]), "another choice is another question"
    ask(do="keep", job=job.id)
    assert f"{told} It was inserted." in looked()[1]


def test_where_steps_are_left_out_already_it_is_said_why_nothing_is_tried(comfyui, workflow, user_folder):
    workflow["reuse"] = node("PacelineReuseSteps", model=["model", 0], budget=0.05)
    workflow["sampler"]["inputs"]["model"] = ["reuse", 0]
    began = ask(do="run", prompt=workflow, choice="fast")
    comfyui.run(began["prompt"])
    answer = ask(do="next", job=began["job"], seconds={"samplingRun": 3.0})
    assert answer["phase"] == "answer" and answer["offer"] is None
    assert said_of_sampling(answer).startswith("Apply ToMe: a node skips steps here, or ")


def test_nobody_else_can_switch_it_on_and_only_the_last_run_is_known(comfyui, workflow):
    from paceline.service.faster.job_store import JOBS

    first = ask(do="run", prompt=workflow, choice="fast")
    second = ask(do="run", prompt=workflow, choice="fast")
    comfyui.run(first["prompt"])  # as when somebody runs a prompt again that was saved with its picture
    assert JOBS.find(second["job"]).observer.samplings == []
    with pytest.raises(InvalidSetting, match="not known any more"):
        ask(do="next", job=first["job"])
    job, running = JOBS.find(second["job"]), {}
    server = SimpleNamespace(prompt_queue=SimpleNamespace(mutex=nullcontext(), currently_running=running, queue=[]))
    JOBS.queued({"prompt": workflow}, server)  # another prompt is queued while it is on its way into the queue
    comfyui.run(second["prompt"])
    assert JOBS.find(second["job"]) is job and job.observer.bytes > 0
    running[0] = (0, "id", second["prompt"], {}, [])
    JOBS.queued({"prompt": workflow}, server)  # another prompt is queued while it decodes its picture
    assert job.observer.bytes > 0
    running.clear()
    JOBS.queued({"prompt": workflow}, server)  # or when it is over, and nobody has asked for the probe
    assert job.observer.bytes == 0
    with pytest.raises(InvalidSetting, match="not known any more: another prompt was queued since"):
        ask(do="next", job=second["job"])


def test_a_run_that_is_dropped_while_it_is_probed_ends_as_any_that_is_cancelled(comfyui, workflow):
    """As when somebody closes the dialog: that it is dropped reaches the server before the prompt is interrupted."""
    import comfy.model_management as management

    began = ask(do="run", prompt=workflow, choice="fast")
    comfyui.run(began["prompt"])
    ask(do="next", job=began["job"])
    job = job_of(began)

    def say(share):
        if share > 0.5:
            raise management.InterruptProcessingException
        if share > 0:
            ask(do="drop", job=began["job"])

    with pytest.raises(management.InterruptProcessingException), torch.inference_mode():
        job.probe(say)
    assert job.observer.bytes == 0
    with pytest.raises(InvalidSetting, match="not known any more"):
        job_of(began)


@pytest.mark.parametrize(
    "sent",
    [
        None,
        {},
        {"do": "jump"},
        {"do": "look", "prompt": []},
        {"do": "look", "prompt": {"1": 2}},
        {"do": "look", "prompt": {}, "choice": "best"},
        {"do": "next", "job": "x", "seconds": {"steps": float("nan")}},
        {"do": "next", "job": "x"},
        {"do": "look", "prompt": {}, "more": 1},
    ],
    ids=range(9),
)
def test_a_bad_request_is_refused_with_a_sentence(reads, comfyui, sent):
    from paceline.nodes import NODES
    from paceline.service.faster.job_store import faster_payload

    reads.refused(InvalidSetting, faster_payload, sent, NODES)


def test_a_workflow_without_a_sampler_is_told(comfyui):
    state = ask(do="look", prompt={"1": node("Note")}, choice="fast")
    assert "no sampler with a model" in state["why_not"]["text"]
    off = [{"id": "1", "type": "KSampler", "title": "My sampler", "values": []}]
    state = ask(do="look", prompt={"1": node("Note")}, choice="fast", bypassed=off)
    assert state["why_not"]["text"] == "My sampler is muted or bypassed, so nothing is sampled."
