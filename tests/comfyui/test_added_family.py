"""A family of models that only this file knows: one record is all that its networks need, in both hosts."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from comfy_host import in_process
from comfy_host.transformers import build, conditioning, latent
from distances import close
from paceline import FuseQKV, optimize, report
from paceline.core.errors import UnsupportedModel
from paceline.optimizers.families import find_family, known
from paceline.optimizers.families.family import AttentionLayer, Family

WIDTH, HEADS, PATCH, TEXT = 32, 2, 2, 20


def added(family: Family):
    """Know one more family as long as the context lasts, asked before all others."""
    return mock.patch.object(known, "FAMILIES", (family, *known.FAMILIES))


class Attention(torch.nn.Module):
    """Attention whose projections have names of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.wq, self.wk, self.wv = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def get_processor(self):
        return self

    def forward(self, x, transformer_options=None):
        q, k, v = self.wq(x), self.wk(x), self.wv(x)
        if transformer_options is not None:
            from comfy.ldm.modules.attention import optimized_attention

            return optimized_attention(q, k, v, HEADS, transformer_options=transformer_options)
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


class Network(torch.nn.Module):
    """Patches of a latent and the text, in one sequence."""

    patch_size = PATCH

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.image = torch.nn.Conv2d(16, WIDTH, PATCH, PATCH)
        self.text = torch.nn.Linear(24, WIDTH)
        self.stages = torch.nn.ModuleList(Attention() for _ in range(2))
        self.back = torch.nn.ConvTranspose2d(WIDTH, 16, PATCH, PATCH)
        self.requires_grad_(False)

    def run(self, x, text, text_first, **options):
        image = self.image(x)
        size, parts = image.shape[2:], [image.flatten(2).mT, self.text(text)]
        tokens = torch.cat(parts[::-1] if text_first else parts, dim=1)
        for stage in self.stages:
            tokens = tokens + stage(tokens, **options)
        tokens = tokens[:, -parts[0].shape[1] :] if text_first else tokens[:, : parts[0].shape[1]]
        return self.back(tokens.mT.unflatten(2, size))


class ComfyNetwork(Network):
    dtype = torch.float32

    def forward(self, x, timesteps, context, transformer_options, **_):
        return self.run(x, context, text_first=True, transformer_options=transformer_options)


class DiffusersNetwork(Network):
    class config:  # noqa: N801 - what diffusers calls it
        patch_size = PATCH

    def forward(self, hidden_states, timestep, encoder_hidden_states):
        return self.run(hidden_states, encoder_hidden_states, text_first=False)


def path(of: type) -> str:
    return f"{of.__module__}.{of.__qualname__}"


MINE = Family(
    name="Mine",
    networks=(path(ComfyNetwork), path(DiffusersNetwork)),
    attention=(AttentionLayer(path(Attention), (("wq", "wk", "wv"),)),),
    protected=((r"\.wv$", "my values have outliers"),),
)


@pytest.fixture
def model(studio):
    made = build("flux")
    made.model.diffusion_model = ComfyNetwork()
    return made


def sample(model):
    text = conditioning("flux", TEXT, seed=1)
    return in_process.sample(model, text, text, latent("flux", 16, 24), steps=1, seed=7, cfg=1.0, scheduler="simple")


def test_one_record_is_enough_in_comfyui(studio, model):
    plain = sample(model)
    with added(MINE):
        fused = studio.run("PacelineFuseQKV", model=model)
    assert close(sample(fused), plain)
    assert "q, k and v of 2 attention layers" in studio.report(fused)
    assert "q, k and v in 2 attention calls" in studio.report(fused)


def test_and_without_it_nothing_is_served(studio, model):
    with added(MINE):
        assert find_family(model.model.diffusion_model) is MINE
    assert find_family(model.model.diffusion_model) is None
    with pytest.raises(Exception, match="is not among the models it knows"):
        studio.run("PacelineFuseQKV", model=model)
    with pytest.raises(UnsupportedModel, match="it is not among the models it knows"):
        optimize(DiffusersNetwork(), FuseQKV())


def test_one_record_is_enough_in_diffusers():
    network = DiffusersNetwork()
    image, text = torch.randn(2, 16, 16, 24), torch.randn(2, TEXT, 24)
    inputs = {"hidden_states": image, "timestep": 1.0, "encoder_hidden_states": text}
    plain = network(**inputs)
    with added(MINE), optimize(network, FuseQKV()):
        assert close(network(**inputs), plain)
        assert "q, k and v of 2 attention layers" in str(report(network))
        text = str(report(network))
        assert "one multiplication for q, k and v in 2 attention calls" in text and "fallbacks: 0" in text
    assert torch.equal(network(**inputs), plain)
