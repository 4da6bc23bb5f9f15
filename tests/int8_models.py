"""What the tests of int8 models share: naming layers, comparing, a LoRA, and one call of the network."""

import re

import torch

# Which layers gain is a matter of the machine: so they are named. These are all that may be quantised.
CHOSEN = "attn, ff"
TINY = {"include": CHOSEN}


def only(name):
    """Settings that quantise the layers of attn1, attn2 or ff, whatever the machine gains."""
    return {"include": name, "exclude": ", ".join({"attn1", "attn2", "ff"} - {name})}


def int8_layers(model):
    modules = model.model.diffusion_model.named_modules()
    return {name: m for name, m in modules if getattr(getattr(m, "weight", None), "_layout_cls", "")}


def with_lora(model, strength, rank=4):
    """A LoRA of one low rank on every layer of attention and feed-forward: (clone, what the same keys are called)."""
    clone = model.clone()
    patches = {}
    generator = torch.Generator().manual_seed(5)
    for name, parameter in clone.model.named_parameters():
        if re.search(r"attn\d\.to_\w+(\.0)?\.weight|ff\.net\.\S+weight", name):
            rows, columns = parameter.shape
            # Not scaled by the weight itself: a loaded model's weights have the LoRAs of the last run in them.
            update = torch.randn(rows, rank, generator=generator) @ torch.randn(rank, columns, generator=generator)
            patches[name] = ("diff", (update * 0.2 / (rank * columns) ** 0.5,))
    assert len(patches) == 70
    assert sorted(clone.add_patches(patches, strength)) == sorted(patches)
    return clone


def one_call(model, sigma=3.0):
    """The network's prediction for one noisy latent, as a sampler asks for it; LoRAs only if it is loaded."""
    generator = torch.Generator().manual_seed(3)
    x, context = torch.randn(2, 4, 24, 16, generator=generator), torch.randn(2, 77, 48, generator=generator)
    with torch.inference_mode():
        options = {"c_crossattn": context, "transformer_options": {}}
        return model.model.apply_model(x, torch.full((2,), sigma), **options).float()
