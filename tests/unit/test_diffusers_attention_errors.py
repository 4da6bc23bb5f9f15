"""What happens in diffusers when an attention kernel fails: the same as in ComfyUI."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from paceline import Attention, optimize, restore
from paceline.optimizers.attention.backend import Inputs
from paceline.optimizers.attention.registry import get
from paceline.optimizers.in_diffusers.host import host_of
from paceline.optimizers.in_diffusers.patches import all_in_call
from random_pipelines import baseline, distance, picture, small


def technique(part: Any) -> Any:
    host = host_of(part)
    assert host is not None
    return host.find("attention")


def inputs(text: int = 9) -> dict[str, torch.Tensor]:
    """What Flux's transformer is given for an image of 4 x 6 tokens."""
    generator = torch.Generator().manual_seed(0)
    config = small("flux").denoiser.config
    places = torch.stack([torch.zeros(24), torch.arange(24) // 6, torch.arange(24) % 6], dim=1)
    return {
        "hidden_states": torch.randn(1, 24, config.in_channels, generator=generator),
        "encoder_hidden_states": torch.randn(1, text, config.joint_attention_dim, generator=generator),
        "pooled_projections": torch.randn(1, config.pooled_projection_dim, generator=generator),
        "timestep": torch.ones(1),
        "img_ids": places,
        "txt_ids": torch.zeros(text, 3),
        "guidance": torch.ones(1),
    }


def planted(part: Any, fault: Any) -> Any:
    """Put an approximate backend on a part that computes exactly but for a ``fault``, which is given calls."""
    chosen, exact, calls = technique(part), get("sdpa_math").load(), []

    def function(inputs: Inputs) -> torch.Tensor:
        calls.append(inputs.q.shape)
        return fault(len(calls), exact(inputs))

    chosen.policy.backend = dataclasses.replace(chosen.policy.backend, name="planted", exact=False)
    chosen.policy.function, chosen.calls = function, calls
    return chosen


def test_numbers_that_are_not_finite_are_computed_again_and_it_is_remembered() -> None:
    pipeline = small("sd15")
    optimize(pipeline.pipe, Attention("sdpa_math"), components=["unet"])
    chosen = planted(pipeline.denoiser, lambda number, output: output)
    assert distance(picture(pipeline), baseline("sd15")) <= 2e-5
    assert chosen.summary().state == "active" and not chosen.run.faults
    last = len(chosen.calls)  # of the last evaluation of a picture
    chosen = planted(pipeline.denoiser, lambda number, output: output * float("nan") if number == last else output)
    assert distance(picture(pipeline), baseline("sd15")) <= 2e-5
    said = chosen.summary()
    assert said.state == "partly" and said.headline.startswith("planted gave numbers that are not finite in evaluation")
    assert said.headline.endswith("from there on the run is without it") and len(chosen.calls) == last
    assert distance(picture(pipeline), baseline("sd15")) <= 2e-5 and len(chosen.calls) == last
    restore(pipeline.pipe)
    assert torch.equal(picture(pipeline), baseline("sd15"))


def test_a_layer_that_is_far_from_exact_attention_is_left_out() -> None:
    network, plain = small("flux").denoiser, small("flux").denoiser
    layers = len([part for part in network.modules() if hasattr(part, "get_processor")])
    optimize(network, Attention("vanilla"))
    chosen = planted(network, lambda number, output: output * 1.3 if number == 2 else output)
    with torch.no_grad():
        assert distance(network(**inputs()).sample, plain(**inputs()).sample) <= 2e-5
    assert len(chosen.calls) == 2 * layers - 1
    assert chosen.summary().headline == "planted was far from exact attention in 1 layer, now computed exactly"


def test_auto_leaves_the_attention_in_place_that_the_program_has_chosen() -> None:
    from diffusers.models.attention_processor import AttnProcessor2_0, XFormersAttnProcessor

    pipeline = small("sd15")
    first, *others = (part for part in pipeline.denoiser.modules() if hasattr(part, "get_processor"))
    first.set_processor(XFormersAttnProcessor())
    optimize(pipeline.pipe, Attention(), components=["unet"])
    assert isinstance(first.get_processor(), XFormersAttnProcessor)
    assert all(isinstance(layer.get_processor(), AttnProcessor2_0) for layer in others)
    chosen = "diffusers' XFormersAttnProcessor on 1 layer was chosen before, which auto leaves in place"
    assert chosen in technique(pipeline.denoiser).policy.describe()


def test_auto_leaves_the_backend_of_diffusers_dispatcher_in_place() -> None:
    network, plain = small("flux").denoiser, small("flux").denoiser
    for one in (network, plain):
        for part in one.modules():
            if hasattr(part, "get_processor"):
                part.get_processor()._attention_backend = "_native_math"
    optimize(network, Attention())
    with torch.no_grad():
        assert torch.equal(network(**inputs()).sample, plain(**inputs()).sample)
    said = technique(network).summary()
    assert said.state == "inactive" and "diffusers' dispatcher (_native_math) on " in said.headline
    restore(network)
    optimize(network, Attention("sdpa"))
    layers = [part for part in network.modules() if hasattr(part, "get_processor")]
    host = host_of(network)
    assert host is not None
    with all_in_call(host._wraps):
        assert {layer.get_processor()._attention_backend for layer in layers} == {"native"}
    assert {layer.get_processor()._attention_backend for layer in layers} == {"_native_math"}
