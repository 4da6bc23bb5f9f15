"""The icon models' training: it starts, learns and saves what the demo's loader reads."""

from __future__ import annotations

import json
from types import SimpleNamespace

import icon_data
import pytest
import torch
import train_icons
from safetensors import safe_open

pytestmark = pytest.mark.slow


def test_each_setting_has_the_geometrys_default_and_can_be_given():
    small = train_icons.parse([])
    assert (small.size, small.channels, small.batch, small.seconds) == (32, 32, 16, 5400.0)
    given = train_icons.parse(["--geometry", "icons-lumina", "--batch", "3"])
    assert (given.size, given.channels, given.batch) == (64, 256, 3)


@pytest.mark.thorough
def test_two_steps_of_training(tmp_path, monkeypatch):
    """In bf16, as on a GPU; noise takes the place of the icons, whose font has to be downloaded."""
    captions = ["red heart flat", "blue star tile"]
    source = SimpleNamespace(captions=captions, credit="none")
    source.batch = lambda count: (torch.rand(count, 4, 32, 32) * 2 - 1, (captions * count)[:count])
    monkeypatch.setattr(icon_data, "Icons", lambda cache, side, device: source)
    out = tmp_path / "icons.safetensors"
    words = ["--batch", "2", "--steps", "2", "--processes", "1", "--device", "cpu", "--precision", "bf16"]
    train_icons.train(0, train_icons.parse([*words, "--drawn", "0", "--out", str(out)]), 1, "")
    with safe_open(out, "pt") as file:
        config = json.loads(file.metadata()["config"])
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert config["image_size"] == 32 and config["channel_mult"] == [1, 2, 4]
    assert all(weight.isfinite().all() for weight in weights.values())
    assert weights["model.diffusion_model.out.2.weight"].any(), "what starts as zeros has learned something"
