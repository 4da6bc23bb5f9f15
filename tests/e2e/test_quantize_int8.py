"""Quantise, save, and load the file in a server without this pack: the same picture."""

from __future__ import annotations

import numpy as np
import pytest
from comfy_host.server import ComfyServer

pytestmark = pytest.mark.slow


def workflow(checkpoint: str, model: dict, source: list) -> dict:
    """A text-to-image graph whose sampler reads the MODEL from ``source``, with the nodes in ``model``."""
    encode = {"class_type": "CLIPTextEncode", "inputs": {"clip": ["1", 1]}}
    return {
        "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": checkpoint}},
        "2": {**encode, "inputs": {**encode["inputs"], "text": "a lighthouse"}},
        "3": {**encode, "inputs": {**encode["inputs"], "text": "blurry"}},
        "4": {"class_type": "EmptyLatentImage", "inputs": {"width": 128, "height": 192, "batch_size": 1}},
        "5": {
            "class_type": "KSampler",
            "inputs": {
                "model": source, "positive": ["2", 0], "negative": ["3", 0], "latent_image": ["4", 0],
                "seed": 7, "steps": 2, "cfg": 7.0, "sampler_name": "euler", "scheduler": "normal", "denoise": 1.0,
            },
        },
        "6": {"class_type": "VAEDecode", "inputs": {"samples": ["5", 0], "vae": ["1", 2]}},
        "7": {"class_type": "SaveImage", "inputs": {"images": ["6", 0], "filename_prefix": "int8"}},
        **model,
    }  # fmt: skip


@pytest.mark.thorough
def test_a_server_without_the_pack_draws_the_same_from_the_file(server, client, sd15_checkpoint, tmp_path):
    name = sd15_checkpoint.name
    quantize = {
        "class_type": "PacelineQuantizeInt8",
        "inputs": {"model": ["1", 0], "preset": "balanced", "mode": "int8", "include": "attn, ff", "exclude": "",
                   "rotation": "auto", "device": "auto"},
    }  # fmt: skip
    save = {
        "class_type": "PacelineSaveInt8Model",
        "inputs": {"model": ["8", 0], "filename_prefix": "diffusion_models/small"},
    }
    result = client.run(workflow(name, {"8": quantize, "9": save}, ["8", 0]))
    expected = result.pixels()
    told = [event["headline"] for event in result.of_type("paceline.activity") if event["node"] == "8"]
    assert "70 of 80 linear layers in int8" in told[0] and "active in 70 linear layers" in told[-1]
    full = client.run(workflow(name, {}, ["1", 0])).pixels()
    assert not np.array_equal(expected, full)
    assert np.abs(expected - full).mean() < 0.02 * 255
    saved = list((server.output_dir / "diffusion_models").glob("small*.safetensors"))
    assert len(saved) == 1

    models = {"checkpoints": [sd15_checkpoint], "diffusion_models": saved}
    with ComfyServer(models=models, cpu=True, load_pack=False) as plain, plain.client() as other:
        assert "PacelineQuantizeInt8" not in other.object_info()
        loader = {"class_type": "UNETLoader", "inputs": {"unet_name": saved[0].name, "weight_dtype": "default"}}
        assert np.array_equal(other.run(workflow(name, {"8": loader}, ["8", 0])).pixels(), expected)
