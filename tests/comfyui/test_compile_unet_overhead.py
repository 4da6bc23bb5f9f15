"""What our own Python takes in a compiled step: the network does nothing, so all that runs is what stands around it."""

from __future__ import annotations

import pytest
import torch
from comfy_host.paths import ROOT

PLAIN, CALL, REPLAY = "plain", "default", "cuda-graph"


class EmptyRecording:
    """Stands for a CUDA graph that launches nothing."""

    held_bytes = 0

    def __init__(self, run, device):
        self.output = run()

    def replay(self):
        """Launch nothing."""


@pytest.fixture
def models(small):
    """Clones that compile and record a network that returns its first argument, by mode."""
    from paceline.core.technique import attach
    from paceline.optimizers.compilation.compiler import Compiler
    from paceline.optimizers.compilation.recorded_network import RecordedNetwork
    from paceline.optimizers.compilation.settings import CompileSettings, NetworkSettings
    from paceline.optimizers.hosts.comfyui.compilation.unet import CompileUNet
    from paceline.optimizers.hosts.comfyui.model import ModelTarget

    class Nothing(Compiler):
        def function(self, *args, **options):
            made = super().function(*args, **options)

            def nothing(key, latent, *rest, **more):
                made._backend.runs += 1
                return latent

            made._compiled = nothing
            return made

        def recorded(self, network, function, refine):
            return RecordedNetwork(network, function, refine, EmptyRecording)

    def compiled(mode):
        how = NetworkSettings(CompileSettings(backend="eager", mode=mode))
        return attach(ModelTarget(small.model), CompileUNet(small.model, how, Nothing()))

    return {mode: compiled(mode) for mode in (CALL, REPLAY)}


def test_the_empty_network_is_replayed_and_nothing_is_compiled(small, models):
    for mode, model in models.items():
        small.sample(model, steps=4)
        technique = model.get_attachment("paceline").find("compilation")
        (compiled,) = technique.policy.used
        assert not compiled.functions[0].state.graphs and not technique.runs.latest.activity.fallbacks
        assert (compiled.recorded.recorded.replayed if compiled.recorded else 0) == 3 * (mode == REPLAY)


def test_our_part_of_a_step_enters_few_functions(small, models, monkeypatch):
    """A count, not a time: it is the same on a busy machine."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from host_time import python_calls, step_of

    with torch.inference_mode():
        steps = {mode: step_of(model, 16) for mode, model in {PLAIN: small.model, **models}.items()}
        network = small.model.model.diffusion_model
        counts = {}
        for mode, step in steps.items():
            if mode == PLAIN:
                monkeypatch.setattr(network, "_forward", lambda latent, *args, **kwargs: latent, raising=False)
            for _ in range(3):  # the recording is made at the second
                step()
            counts[mode] = python_calls(step)
            if mode == PLAIN:
                monkeypatch.undo()
    for mode, most in {CALL: 180, REPLAY: 140}.items():
        assert 20 < counts[mode] - counts[PLAIN] <= most, (mode, counts)
