"""Compile UNet and Compile VAE in servers that were started with each of ComfyUI's options for attention."""

from __future__ import annotations

import json

import numpy as np
import pytest
from comfy_host.cached import generated
from comfy_host.paths import ROOT
from comfy_host.server import ComfyServer
from comfy_host.workflow import to_api

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

OPTIONS = [
    (),
    ("--use-split-cross-attention",),
    ("--use-quad-cross-attention",),
    ("--use-pytorch-cross-attention",),
    ("--force-upcast-attention",),
    ("--fp16-unet",),
    ("--bf16-unet",),
]


def only(prompt: dict, class_type: str) -> dict:
    (node,) = (node for node in prompt.values() if node["class_type"] == class_type)
    return node["inputs"]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "_".join(options) or "default")
def test_compiled_code_is_one_graph_and_draws_the_same(comfy, options):
    checkpoint = generated("sd15_smallest")
    with (
        ComfyServer((), {"checkpoints": [checkpoint]}, options, cpu=True, own_attention=True) as server,
        server.client() as client,
    ):
        path = ROOT / "example_workflows" / "Text to image - without Paceline.json"
        saved = json.loads(path.read_text(encoding="utf-8"))
        prompt = to_api(saved, client.object_info())
        only(prompt, "CheckpointLoaderSimple")["ckpt_name"] = checkpoint.name
        only(prompt, "EmptyLatentImage").update(width=128, height=192)
        sampler, decode = only(prompt, "KSampler"), only(prompt, "VAEDecode")
        sampler["steps"] = 3
        plain = np.asarray(client.run(prompt).image().convert("RGB"))

        info = client.object_info()
        for key, node, name, source in (
            ("901", "PacelineCompileUNet", "model", sampler["model"]),
            ("902", "PacelineCompileVAE", "vae", decode["vae"]),
        ):
            required = info[node]["input"]["required"].items()
            inputs = {n: given["default"] for n, (_, *rest) in required for given in rest if "default" in given}
            prompt[key] = {"class_type": node, "inputs": {**inputs, name: source, "backend": "aot_eager"}}
        sampler["model"], decode["vae"] = ["901", 0], ["902", 0]
        result = client.run(prompt)
        headlines = {event["node"]: event["headline"] for event in result.of_type("paceline.activity")}
    compiled = np.asarray(result.image().convert("RGB"))
    assert abs(compiled.astype(int) - plain).max() <= 1
    assert headlines["901"].startswith("compiled whole model: 1 graph, 0 recompiles")
    assert headlines["902"].startswith("compiled decode: 1 graph, 0 recompiles")
    assert "graph break" not in " ".join(headlines.values())
