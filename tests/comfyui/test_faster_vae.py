"""*Make this workflow faster* where a VAE takes much of a run's time, run by ComfyUI's executor.

Decoding takes the seconds of the test's own clock, so that what is quicker is the same on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from comfy_host import checkpoints, in_process, vaes
from executing import node
from faster_prompts import ask
from paceline.core.errors import InvalidSetting

PLAIN, SHORT = 0.8, 0.2
"""Seconds of a decoding in fp32, and in shorter numbers."""


@dataclass
class Clock:
    """``now``: its seconds; ``once``: those that the next decoding in shorter numbers takes more."""

    now: float = 0.0
    once: float = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def vae(studio):
    return vaes.kl(levels=1)


@pytest.fixture
def clock(studio, vae, monkeypatch):
    from paceline.faster import job
    from paceline.workbench.comfyui import decoding

    found, kind = Clock(), type(vae.first_stage_model)
    decode = kind.decode

    def timed(self, *args, **kwargs):
        if next(self.parameters()).dtype == torch.float32:
            found.now += PLAIN
        else:
            found.now, found.once = found.now + SHORT + found.once, 0.0
        return decode(self, *args, **kwargs)

    monkeypatch.setattr(kind, "decode", timed)
    monkeypatch.setattr(decoding, "time", SimpleNamespace(perf_counter=found.perf_counter))
    monkeypatch.setattr(job, "SPARE", 1e6)  # however long the machine takes
    return found


@pytest.fixture
def workflow(studio, comfyui, vae, clock, monkeypatch):
    from paceline.faster import plan as plans
    from paceline.optimizers.precision import policy

    for module in (policy, plans):
        monkeypatch.setattr(module, "processor_dtype", lambda: torch.bfloat16)
    model = checkpoints.smallest_unet(width=64, context=48)
    options = {"seed": 1, "steps": 2, "cfg": 1.0, "sampler_name": "euler", "scheduler": "normal", "denoise": 1.0}
    links = {"model": ["model", 0], "positive": ["text", 0], "negative": ["text", 0], "latent_image": ["latent", 0]}
    return {
        "model": comfyui.give("MODEL", "small", model),
        "vae": comfyui.give("VAE", "small", vae),
        "text": comfyui.give("CONDITIONING", "some", in_process.random_conditioning(model, seed=1)),
        "latent": comfyui.give("LATENT", "blank", {"samples": torch.zeros(1, 4, 16, 16)}),
        "sampler": node("KSampler", **links, **options),
        "decode": node("VAEDecode", samples=["sampler", 0], vae=["vae", 0]),
        "save": node("PreviewAny", source=["decode", 0]),
    }


def answered(comfyui, prompt, steps, **asked):
    """Return the job and the answer of a run whose steps took some seconds, whatever else this machine does."""
    from paceline.faster.jobs import JOBS

    began = ask(do="run", prompt=prompt, choice="lossless", **asked)
    comfyui.run(began["prompt"])
    for one in JOBS.known(began["job"]).observer.samplings:
        one.loading_seconds, one.sampling_seconds = 0.0, steps
    state = ask(do="next", job=began["job"], seconds={"samplingRun": steps, "decoding": PLAIN})
    if state["phase"] == "probe":
        comfyui.run(state["prompt"])
        state = ask(do="next", job=began["job"])
    assert state["phase"] == "answer"
    return began, state


def test_a_slow_vae_is_offered_its_node_and_decodes_as_that_node_does(comfyui, studio, workflow, vae):
    plain = comfyui.value(workflow, ["decode", 0])
    began, answer = answered(comfyui, workflow, steps=0.2)
    assert torch.equal(comfyui.value(began["prompt"], ["decode", 0]), plain), "watched, it decodes the same"
    offer = answer["offer"]
    assert offer["label"] == "VAE Precision" and offer["expected"]["text"] == "expected 2.5x (2.5 to 2.5)"
    assert offer["about"]["text"].startswith("its VAE 4.0x (4.0 to 4.0), difference ")
    (insert,) = offer["inserts"]
    assert insert["name"] == "vae" and insert["receivers"] == [{"node": "decode", "input": "vae"}]
    kept = ask(do="keep", job=began["job"])["prompt"]
    (step,) = insert["steps"]
    half = studio.run(step["node"], vae=vae, **step["inputs"])
    latent = comfyui.value(workflow, ["sampler", 0])["samples"]
    with torch.inference_mode():
        found = comfyui.value(kept, ["decode", 0])
        assert torch.equal(found, half.decode(latent)) and not torch.equal(found, plain)
    assert torch.equal(comfyui.value(workflow, ["decode", 0]), plain)
    assert offer["proof_seconds"] == []  # its latents are the plain ones, so the page has no button for it
    with pytest.raises(InvalidSetting, match="No sampler"):
        ask(do="prove", job=began["job"])


def test_what_a_vae_costs_once_is_won_back_in_as_many_pictures_as_are_drawn(comfyui, workflow, clock):
    clock.once = 29.9  # 0.6 s are won for each picture
    _, answer = answered(comfyui, workflow, steps=0.2, pictures=20)
    said = "VAE Precision: costs 29.9 s once, wins 0.6 s a picture: pays from picture 50"
    assert answer["offer"] is None and said in [line["text"] for line in answer["lines"]]
    clock.once = 29.9
    _, answer = answered(comfyui, workflow, steps=0.2, pictures=1000)
    assert answer["offer"]["label"] == "VAE Precision"


def test_a_vae_that_takes_next_to_nothing_of_the_run_is_not_tried_and_that_is_said(comfyui, workflow):
    _, answer = answered(comfyui, workflow, steps=1000.0)
    why = [line["text"] for line in answer["lines"] if "VAE Precision" in line["text"]]
    assert why == ["VAE Precision: the whole run would gain too little."] and not answer["offer"]


def test_short_numbers_that_a_processor_does_not_have_are_not_tried(comfyui, workflow, monkeypatch):
    from paceline.faster import plan as plans

    def looked():
        return [line["text"] for line in ask(do="look", prompt=workflow, choice="lossless")["lines"]]

    assert "Looks at: VAE Precision" in looked()
    monkeypatch.setattr(plans, "processor_dtype", lambda: torch.float32)
    assert not any("VAE" in line for line in looked())
