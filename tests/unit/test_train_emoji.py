"""The emoji model in Stable Diffusion 1.5's geometry: its sizes are the real ones, and training it starts and saves."""

from __future__ import annotations

import json
import subprocess
import sys

import emoji_net
import pytest
import torch
import train_emoji
from comfy_host.paths import ROOT
from safetensors import safe_open

pytestmark = pytest.mark.slow


def test_the_geometry_is_that_of_sd15_at_512():
    unet_class, operations, _ = emoji_net.import_unet(torch.device("cpu"))
    args = train_emoji.parse(["--geometry", "sd15"])
    with torch.device("meta"):
        unet = unet_class(**emoji_net.unet_settings(args), dtype=torch.float32, operations=operations)
    assert sum(parameter.numel() for parameter in unet.parameters()) / 1e6 == pytest.approx(17.6, abs=0.05)
    tokens = set()
    for name, module in unet.named_modules():
        if name.endswith("attn1"):
            module.register_forward_pre_hook(lambda _, inputs: tokens.add(inputs[0].shape[1]))
    latent = torch.zeros(1, 4, 64, 64, device="meta")
    text = torch.zeros(1, 4, args.context, device="meta")
    assert unet(latent, torch.zeros(1, device="meta"), context=text).shape == latent.shape
    assert tokens == {4096, 1024, 256}


def test_the_small_one_is_the_default_and_each_setting_can_be_given():
    small = train_emoji.parse([])
    assert (small.size, small.channels, small.batch, small.seconds) == (32, 32, 16, 3600.0)
    given = train_emoji.parse(["--geometry", "sd15", "--batch", "3"])
    assert (given.size, given.channels, given.batch) == (64, 64, 3)


@pytest.mark.thorough
def test_two_steps_of_the_whole_geometry(tmp_path):
    """In bf16, as on a GPU."""
    out = tmp_path / "emoji64.safetensors"
    command = [sys.executable, "tools/train_emoji.py", "--geometry", "sd15", "--batch", "1", "--steps", "2",
               "--processes", "1", "--device", "cpu", "--precision", "bf16", "--drawn", "0", "--placeholders",
               "--work", str(tmp_path), "--out", str(out)]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "finished: 2 steps" in done.stdout
    with safe_open(out, "pt") as file:
        config = json.loads(file.metadata()["config"])
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert config["image_size"] == 64 and config["channel_mult"] == [1, 2, 4]
    assert sum(weight.numel() for weight in weights.values()) > 17.5e6
    assert all(weight.isfinite().all() for weight in weights.values())
    assert weights["model.diffusion_model.out.2.weight"].any(), "what starts as zeros has learned something"
