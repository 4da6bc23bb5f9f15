"""The small Flux and Wan that learn icons: ComfyUI samples what was trained."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import train_icons
from comfy_host import in_process
from comfy_host.paths import ROOT

pytestmark = pytest.mark.slow

LEVEL = 0.6


@pytest.fixture(params=["icons-flux", "icons-video"])
def drawn(request, tmp_path, monkeypatch):
    """An untrained net, the same weights as a MODEL of ComfyUI's, and the size of a latent."""
    in_process.bootstrap()
    monkeypatch.syspath_prepend(str(ROOT / "demo" / "icon_nodes"))
    import comfy.model_management
    import icon_flux
    import icon_net
    import icon_wan
    import model as loader

    monkeypatch.setattr(comfy.model_management, "in_training", False)  # build() switches it on
    torch.manual_seed(0)
    flux = request.param == "icons-flux"
    kind, blocks, size = (icon_flux, "1,2", (1, 4, 32, 32)) if flux else (icon_wan, "2", (1, 4, 8, 32, 32))
    args = train_icons.parse(["--geometry", request.param, "--channels", "64", "--heads", "2", "--mult", blocks])
    network, settings = kind.build(args, torch.device("cpu"))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    words = {"<pad>": 0, "<null>": 1, "red": 2, "cat": 3, "flat": 4}
    net = kind.Net(network, len(words), args.context)
    source = SimpleNamespace(captions=["red cat flat"], credit="none")
    icon_net.save(net, tmp_path / "w.safetensors", settings, source, words, {"prediction": "flow"})
    patcher, encode = loader.load(tmp_path / "w.safetensors")
    return net, patcher, encode, size


@torch.no_grad()
def test_comfyui_predicts_what_was_trained(drawn):
    net, patcher, encode, size = drawn
    noisy = torch.randn(size)
    velocity = net(noisy, torch.tensor([LEVEL]), torch.tensor([[2, 3, 4, 0]]))
    [[text, more]] = encode("red cat flat")
    options = patcher.clone().model_options["transformer_options"]
    denoised = patcher.model.apply_model(
        noisy, torch.tensor([LEVEL]), c_crossattn=text, y=more["pooled_output"], transformer_options=options
    )
    assert (denoised - (noisy - LEVEL * velocity)).abs().max() < 0.02, "weights are saved in half precision"
