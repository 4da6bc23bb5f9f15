"""The small Flux that learns icons: ComfyUI samples what was trained."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import train_emoji
from comfy_host import in_process
from comfy_host.paths import ROOT

pytestmark = pytest.mark.slow

LEVEL = 0.6


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """An untrained net, and the same weights as a MODEL of ComfyUI's."""
    in_process.bootstrap()
    monkeypatch.syspath_prepend(str(ROOT / "demo" / "emoji_nodes"))
    import comfy.model_management
    import emoji_flux
    import emoji_net
    import model as loader

    monkeypatch.setattr(comfy.model_management, "in_training", False)  # build() switches it on
    torch.manual_seed(0)
    args = train_emoji.parse(["--geometry", "icons-flux", "--channels", "64", "--heads", "2", "--mult", "1,2"])
    network, settings = emoji_flux.build(args, torch.device("cpu"))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    words = {"<pad>": 0, "<null>": 1, "red": 2, "cat": 3, "flat": 4}
    net = emoji_flux.Net(network, len(words), args.context)
    source = SimpleNamespace(captions=["red cat flat"], credit="none")
    emoji_net.save(net, tmp_path / "w.safetensors", settings, source, words, {"prediction": "flow"})
    patcher, encode = loader.load(tmp_path / "w.safetensors")
    return net, patcher, encode


@torch.no_grad()
def test_comfyui_predicts_what_was_trained(drawn):
    net, patcher, encode = drawn
    noisy = torch.randn(1, 4, 32, 32)
    velocity = net(noisy, torch.tensor([LEVEL]), torch.tensor([[2, 3, 4, 0]]))
    [[text, more]] = encode("red cat flat")
    options = patcher.clone().model_options["transformer_options"]
    denoised = patcher.model.apply_model(
        noisy, torch.tensor([LEVEL]), c_crossattn=text, y=more["pooled_output"], transformer_options=options
    )
    assert (denoised - (noisy - LEVEL * velocity)).abs().max() < 0.02, "weights are saved in half precision"
