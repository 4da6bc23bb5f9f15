"""Compile UNet (code that inductor writes) and Compile VAE in a real ComfyUI server, beside LoRA and Apply ToMe."""

from __future__ import annotations

import copy
import json
import shutil
import sys

import numpy as np
import pytest
from comfy_host.cached import generated
from comfy_host.paths import ROOT
from comfy_host.workflow import to_api, with_defaults

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "win32" and not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler"
    ),
]

LORA, TOME, UNET, VAE = "901", "902", "903", "904"


def only(prompt: dict, class_type: str) -> str:
    (key,) = (key for key, node in prompt.items() if node["class_type"] == class_type)
    return key


@pytest.fixture(scope="module")
def plain(comfy, client, server) -> dict:
    """The shipped baseline workflow, small, and with few blocks: code is generated for each of them."""
    checkpoint = generated("sd15_smallest")
    server.add_model("checkpoints", checkpoint)
    path = ROOT / "example_workflows" / "Text to image - without Paceline.json"
    saved = json.loads(path.read_text(encoding="utf-8"))
    prompt = to_api(saved, client.object_info())
    prompt[only(prompt, "CheckpointLoaderSimple")]["inputs"]["ckpt_name"] = checkpoint.name
    prompt[only(prompt, "EmptyLatentImage")]["inputs"].update(width=128, height=192)
    prompt[only(prompt, "KSampler")]["inputs"]["steps"] = 3
    return prompt


@pytest.fixture(scope="module")
def uncompiled(client, plain, lora_file) -> dict:
    """The same with a LoRA and Apply ToMe."""
    prompt = copy.deepcopy(plain)
    sampler = prompt[only(prompt, "KSampler")]["inputs"]
    prompt[LORA] = {
        "class_type": "LoraLoaderModelOnly",
        "inputs": {"model": sampler["model"], "lora_name": lora_file.name, "strength_model": 0.8},
    }
    tome = {"preset": "custom", "method": "merge", "ratio": 0.5, "max_downsample": "auto"}
    prompt[TOME] = with_defaults(client.object_info(), "PacelineApplyToMe", model=[LORA, 0], **tome)
    sampler["model"] = [TOME, 0]
    return prompt


@pytest.fixture(scope="module")
def compiled(client, uncompiled) -> dict:
    """The same with Compile UNet and Compile VAE."""
    prompt = copy.deepcopy(uncompiled)
    decode = prompt[only(prompt, "VAEDecode")]["inputs"]
    info = client.object_info()
    prompt[UNET] = with_defaults(info, "PacelineCompileUNet", model=[TOME, 0], backend="inductor")
    vae = {"vae": decode["vae"], "backend": "aot_eager", "compile_encoder": False}
    prompt[VAE] = with_defaults(info, "PacelineCompileVAE", **vae)
    prompt[only(prompt, "KSampler")]["inputs"]["model"] = [UNET, 0]
    decode["vae"] = [VAE, 0]
    return prompt


def with_seed(prompt: dict, seed: int) -> dict:
    """Another seed: ComfyUI would hand out the kept image else."""
    changed = copy.deepcopy(prompt)
    changed[only(changed, "KSampler")]["inputs"]["seed"] = seed
    return changed


def last_activity(result, node: str) -> dict:
    return [event for event in result.of_type("paceline.activity") if event["node"] == node][-1]


@pytest.mark.thorough
def test_the_image_is_that_of_the_uncompiled_nodes_and_the_baseline_comes_back(client, plain, uncompiled, compiled):
    seeds = (11, 12)
    baseline = client.run(with_seed(plain, seeds[0])).pixels()
    expected = [client.run(with_seed(uncompiled, seed)).pixels() for seed in seeds]
    assert not np.array_equal(expected[0], baseline)
    for run, seed in enumerate(seeds):
        result = client.run(with_seed(compiled, seed))
        difference = np.abs(result.pixels() - expected[run])
        assert difference.max() <= 2 and difference.mean() < 0.05
        unet, vae = last_activity(result, UNET), last_activity(result, VAE)
        assert unet["state"] == vae["state"] == "active"
        assert unet["headline"].startswith("compiled whole model: 1 graph")
        assert unet["counts"]["recompiles"] == unet["counts"]["fallbacks"] == vae["counts"]["fallbacks"] == 0
        assert "compiled decode: 1 graph" in vae["headline"]
        assert last_activity(result, TOME)["counts"]["fallbacks"] == 0
        progress = result.of_type("paceline.compile")
        assert bool(progress) == (run == 0)  # the second image compiles nothing
        if progress:
            assert {event["node"] for event in progress} <= {UNET, VAE}
            assert progress[0]["headline"].startswith("compiling 00:")
            assert progress[-1]["phase"] == "ready" and progress[-1]["headline"].startswith("compiled in ")
    client.free()
    assert np.array_equal(client.run(with_seed(uncompiled, seeds[0])).pixels(), expected[0])
    client.free()
    assert np.array_equal(client.run(with_seed(plain, seeds[0])).pixels(), baseline)
