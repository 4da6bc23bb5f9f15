"""Each of our nodes on a MODEL, off again and on again: bit for bit what it was, and nothing stays on the network."""

from __future__ import annotations

import pytest
import torch

ON = {
    "merge": ("ApplyToMe", {"preset": "custom", "method": "merge", "ratio": 0.5, "max_downsample": "auto"}),
    "kv_downsample": (
        "ApplyToMe",
        {"preset": "custom", "method": "kv_downsample", "ratio": 0.75, "max_downsample": "auto"},
    ),
    "attention": ("SetAttentionProcessor", {"backend": "vanilla"}),
    "fuse": ("FuseQKV", {}),
    "int8": ("QuantizeInt8", {"include": "attn, ff"}),
    "weight_only": ("QuantizeInt8", {"include": "attn, ff", "mode": "weight_only"}),
    "precision": ("ModelPrecision", {"dtype": "bf16"}),
    "channels_last": ("ModelPrecision", {"dtype": "fp32", "channels_last": True}),
    "compile": ("CompileUNet", {"backend": "eager", "strict": True}),
    "reuse": ("ReuseSteps", {"budget": 1.0}),
}
EXACT = ("fuse", "channels_last", "compile")
"""What may draw the very bits of the plain model."""


def state_of(network):
    """Return the weights, and the names of all attributes of each module."""
    weights = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    return weights, {name: sorted(module.__dict__) for name, module in network.named_modules()}


@pytest.mark.parametrize("name", ON)
def test_off_again_is_bit_for_bit_what_it_was(studio, name):
    node, settings = ON[name]
    network, options = studio.model.model.diffusion_model, {"steps": 9 if name == "reuse" else 2}
    with torch.compiler.set_stance("force_eager"):
        plain, before = studio.sample(studio.model, **options), state_of(network)
        model = studio.run(f"Paceline{node}", model=studio.model, **settings)
        drawn = []
        for _ in range(2):
            drawn.append(studio.sample(model, **options))
            assert torch.equal(studio.sample(studio.model, **options), plain)
        assert all(torch.equal(picture, drawn[0]) for picture in drawn)
        assert not torch.equal(drawn[0], plain) or name in EXACT
        removed = studio.run("PacelineRemoveOptimizations", model=model)
        assert torch.equal(studio.sample(removed, **options), plain)
    assert removed.model is studio.model.model
    assert "No Paceline optimizations are attached" in studio.report(removed)
    kept = [key for part in (removed.wrappers, removed.callbacks) for keys in part.values() for key in keys]
    assert not any(str(key).startswith("paceline") for key in kept)
    weights, attributes = state_of(network)
    assert attributes == before[1]
    assert weights.keys() == before[0].keys()
    assert all(torch.equal(tensor, before[0][key]) and tensor.dtype == before[0][key].dtype
               for key, tensor in weights.items())  # fmt: skip
