"""A MODEL whose weights only its own loader understands (GGUF): each technique that reads weights says so first."""

from __future__ import annotations

import pytest
import torch
from comfy_host import checkpoints, transformers
from paceline.core.errors import UnsupportedModel


class Packed(torch.Tensor):
    """Blocks of 32 values in 34 bytes; ``shape`` is that of the values."""

    @property
    def shape(self):
        return getattr(self, "values", self.size())

    def detach(self):
        made = super().detach()
        made.values = self.shape
        return made


def packed(model):
    """Pack the weights of the blocks, as loaders of GGUF files do; return the MODEL."""
    for module in model.model.diffusion_model.modules():
        if isinstance(module, torch.nn.Linear) and module.weight.shape[1] % 32 == 0:
            rows, columns = module.weight.shape
            weight = torch.zeros(rows, columns // 32 * 34, dtype=torch.uint8).as_subclass(Packed)
            weight.values = torch.Size((rows, columns))
            module.weight = torch.nn.Parameter(weight, requires_grad=False)
            module.weight.values = weight.values
    return model


MODELS = {"sd15": lambda: checkpoints.tiny_sd15(width=32, context=48), "flux": lambda: transformers.build("flux")}
TECHNIQUES = {
    "QuantizeInt8": ({}, {"include": "attn, mlp, linear"}, {"mode": "weight_only"}),
    "ModelPrecision": ({"dtype": "bf16"},),
    "FuseQKV": ({},),
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("name", TECHNIQUES)
def test_techniques_that_read_weights_refuse_them(studio, name, kind):
    if (name, kind) == ("FuseQKV", "flux"):
        pytest.skip("it has no projections apart")
    model = packed(MODELS[kind]())
    for settings in TECHNIQUES[name]:
        with pytest.raises(UnsupportedModel, match=r"of the class Packed \(.*only the loader.*Load a safetensors file"):
            studio.nodes[f"Paceline{name}"].execute(model=model, strict=True, **settings)
        plain = studio.nodes[f"Paceline{name}"].execute(model=model, **settings)
        assert plain.result[0] is model or plain.result[0].model is model.model
