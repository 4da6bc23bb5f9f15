"""What our own Python takes in a compiled step: the network does nothing, so all that runs is what stands around it."""

from __future__ import annotations

import sys

import pytest
import torch
from comfy_host.unets import step_of


@pytest.fixture
def compiled(small):
    """A clone that compiles a network that returns its first argument."""
    from paceline.core.technique import attach
    from paceline.optimizers.compilation.compiler import Compiler
    from paceline.optimizers.compilation.settings import NetworkSettings
    from paceline.optimizers.hosts.comfyui.compilation.unet import CompileUNet
    from paceline.optimizers.hosts.comfyui.model import ModelTarget

    class Nothing(Compiler):
        def once(self, owner, key, make):
            network = super().once(owner, key, make)
            (made,) = network.functions

            def nothing(key, latent, *rest, **more):
                made._backend.runs += 1
                return latent

            made._compiled = made._compiled or nothing
            return network

    how = NetworkSettings(backend="eager")
    return attach(ModelTarget(small.model), CompileUNet(small.model, how, Nothing()))


def test_our_part_of_a_step_enters_few_functions(small, compiled, monkeypatch):
    """A count, not a time: it is the same on a busy machine."""

    def calls(step):
        for _ in range(3):
            step()
        entered = []
        sys.setprofile(lambda frame, event, argument: entered.append(event) if event == "call" else None)
        try:
            step()
        finally:
            sys.setprofile(None)
        return len(entered)

    with torch.inference_mode():
        plain, ours = step_of(small.model, 16), step_of(compiled, 16)
        with monkeypatch.context() as patch:
            network = small.model.model.diffusion_model
            patch.setattr(network, "_forward", lambda latent, *args, **kwargs: latent, raising=False)
            without = calls(plain)
        assert 20 < calls(ours) - without <= 190  # with those of the guard, which watches compiled code
    (used,) = compiled.get_attachment("paceline").find("compilation").policy.used
    assert not used.functions[0].state.graphs, "nothing is compiled here"
