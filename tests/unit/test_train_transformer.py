"""The small transformers that learn icons: ComfyUI samples what was trained, and they grow."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import train_icons
from comfy_host import in_process
from comfy_host.paths import ROOT

pytestmark = pytest.mark.slow

LEVEL = 0.6


@pytest.fixture(params=["icons-lumina", "icons-video"])
def drawn(request, tmp_path, monkeypatch):
    """An untrained net, the same weights as a MODEL of ComfyUI's, and the size of a latent."""
    in_process.bootstrap()
    monkeypatch.syspath_prepend(str(ROOT / "demo" / "icon_nodes"))
    import comfy.model_management
    import icon_lumina
    import icon_net
    import icon_wan
    import model as loader

    monkeypatch.setattr(comfy.model_management, "in_training", False)  # build() switches it on
    torch.manual_seed(0)
    kind, blocks, size = {
        "icons-lumina": (icon_lumina, "2", (1, 4, 32, 32)),
        "icons-video": (icon_wan, "2", (1, 4, 8, 32, 32)),
    }[request.param]
    chosen = ["--channels", "64", "--heads", "2", "--mult", blocks, "--size", "32"]
    args = train_icons.parse(["--geometry", request.param, *chosen])
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
    given = {"y": more["pooled_output"], "num_tokens": text.shape[1], "transformer_options": options}
    denoised = patcher.model.apply_model(noisy, torch.tensor([LEVEL]), c_crossattn=text, **given)
    assert (denoised - (noisy - LEVEL * velocity)).abs().max() < 0.02, "weights are saved in half precision"


def test_a_student_is_taught_the_way_from_each_level_of_the_schedule_to_the_next(tmp_path, monkeypatch):
    import distil_icons
    import icon_data
    from safetensors.torch import save_file

    in_process.bootstrap()
    monkeypatch.syspath_prepend(str(ROOT / "demo" / "icon_nodes"))
    import comfy.samplers
    import model as loader

    patcher, _ = loader.load(icon_data.WEIGHTS["icons32_lumina_distilled"])
    levels = distil_icons.levels_of(8, 32)
    sampled = comfy.samplers.calculate_sigmas(patcher.model.model_sampling, "simple", 8)
    assert levels == pytest.approx(sampled.tolist(), abs=1e-6)
    path = torch.randn(1, 9, 4, 2, 2).half()
    for number in range(distil_icons.FIRST):
        save_file({"path": path, "ids": torch.zeros(1, 4, dtype=torch.int64)}, tmp_path / f"{number}.safetensors")
    place, state, level, _, velocity = distil_icons.Paths(tmp_path, levels).batch(16)
    assert sorted(place.tolist()) == sorted(2 * list(range(8)))
    ahead = torch.tensor(levels)[place + 1]
    assert torch.allclose(state, path[0, place].float())
    reached = state + velocity * (ahead - level).view(-1, 1, 1, 1)
    assert torch.allclose(reached, path[0, place + 1].float(), atol=1e-5)
