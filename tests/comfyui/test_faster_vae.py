"""*Make this workflow faster* where a VAE takes much of a run's time, run by ComfyUI's executor.

The plain VAE waits before it decodes, so that what is quicker is the same on every machine.
"""

from __future__ import annotations

import time

import pytest
import torch
from comfy_host import checkpoints, in_process, vaes
from executing import node
from faster_prompts import ask
from paceline.core.errors import InvalidSetting

WAIT = 0.8


@pytest.fixture(scope="module")
def vae(studio):
    return vaes.kl(levels=1)


@pytest.fixture
def workflow(studio, comfyui, vae, monkeypatch):
    from paceline.optimizers.precision import policy

    kind = type(vae.first_stage_model)
    decode = kind.decode

    def slow(self, *args, **kwargs):
        if next(self.parameters()).dtype == torch.float32:
            time.sleep(WAIT)
        return decode(self, *args, **kwargs)

    monkeypatch.setattr(kind, "decode", slow)
    monkeypatch.setattr(policy, "processor_dtype", lambda: torch.bfloat16)
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


def of_seconds(job, steps):
    """Let the steps have taken so long, whatever else this machine does."""
    from paceline.faster.jobs import JOBS

    for one in JOBS.known(job).observer.samplings:
        one.loading_seconds, one.sampling_seconds = 0.0, steps


def test_a_slow_vae_is_offered_its_node_and_decodes_as_that_node_does(comfyui, studio, workflow, vae):
    plain = comfyui.value(workflow, ["decode", 0])
    began = ask(do="run", prompt=workflow, choice="lossless")
    assert torch.equal(comfyui.value(began["prompt"], ["decode", 0]), plain), "watched, it decodes the same"
    of_seconds(began["job"], steps=0.1)
    probing = ask(do="next", job=began["job"], seconds={"samplingRun": 0.1, "decoding": WAIT})
    assert probing["phase"] == "probe"
    comfyui.run(probing["prompt"])
    answer = ask(do="next", job=began["job"])
    (offer,) = answer["offers"]
    assert offer["label"].startswith("VAE Precision") and "; its VAE " in offer["about"]["text"], answer["lines"]
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
    with pytest.raises(InvalidSetting, match="decoding was measured already"):
        ask(do="prove", job=began["job"])


def test_a_vae_that_takes_next_to_nothing_of_the_run_is_not_tried(comfyui, workflow):
    began = ask(do="run", prompt=workflow, choice="lossless")
    comfyui.run(began["prompt"])
    of_seconds(began["job"], steps=1000.0)
    answer = ask(do="next", job=began["job"], seconds={"samplingRun": 1000.0, "decoding": WAIT})
    if answer["phase"] == "probe":
        comfyui.run(answer["prompt"])
        answer = ask(do="next", job=began["job"])
    assert not any("VAE Precision" in line["text"] for line in answer["lines"]) and not answer["offers"]
