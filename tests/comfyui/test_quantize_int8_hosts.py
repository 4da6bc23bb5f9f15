"""The same network in ComfyUI and in diffusers: Quantize int8 takes the same layers, and steps aside alike."""

from __future__ import annotations

import pytest
import torch
from comfy_host import checkpoints
from diffusers import UNet2DConditionModel
from paceline.optimizers.quantization.layers import choose_layers, protected_because
from paceline.optimizers.quantization.settings import QuantizationSettings

CPU = torch.device("cpu")
SD15 = {"block_out_channels": (32, 64), "layers_per_block": 1, "cross_attention_dim": 48, "attention_head_dim": 4,
        "down_block_types": ("CrossAttnDownBlock2D",) * 2, "up_block_types": ("CrossAttnUpBlock2D",) * 2}  # fmt: skip
SDXL = {"block_out_channels": (32, 64, 128), "layers_per_block": 2, "cross_attention_dim": 64,
        "attention_head_dim": (1, 2, 4), "transformer_layers_per_block": (1, 2, 10), "use_linear_projection": True,
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"), "sample_size": 128,
        "addition_embed_type": "text_time", "addition_time_embed_dim": 256,
        "projection_class_embeddings_input_dim": 2816}  # fmt: skip


def both(name):
    """ComfyUI's MODEL, diffusers' UNet with the same weights, and ComfyUI's name of each layer of the latter."""
    from comfy.utils import unet_to_diffusers

    if name == "sd15":
        model, unet = checkpoints.tiny_sd15(width=32, context=48), UNet2DConditionModel(**SD15)
    else:
        model = checkpoints.sdxl_layout(width=32, head_channels=32, context=64)
        unet = UNet2DConditionModel(**SDXL)
    names = unet_to_diffusers(model.model.model_config.unet_config)
    weights = model.model.diffusion_model.state_dict()
    unet.load_state_dict({ours: weights[names[ours]] for ours in unet.state_dict()})
    layers = {ours.removesuffix(".weight"): comfy.removesuffix(".weight") for ours, comfy in names.items()}
    return model, unet.eval(), layers


def layers_of(model, unet):
    """What each host tells the rule."""
    from paceline.optimizers.hosts.comfyui.quantization import layers as comfy
    from paceline.optimizers.hosts.diffusers.quantization import technique as diffusers
    from paceline.optimizers.quantization.layers import Layer

    return (
        [(layer, module.weight.detach) for layer, module in comfy.linear_layers(model, {})],
        [
            (Layer.of(name, layer.weight, None), layer.weight.detach)
            for name, layer in diffusers.linear_layers(unet).items()
        ],
    )


@pytest.mark.parametrize("name", ["sd15", "sdxl"])
def test_a_preset_picks_the_same_layers_of_the_same_unet(studio, name):
    model, unet, names = both(name)
    comfy, diffusers = layers_of(model, unet)
    found = set()
    for settings in ({"preset": "quality"}, {"preset": "speed"}, {"mode": "weight_only"}, {"include": "ff.net"}):
        ours, theirs = (choose_layers(layers, QuantizationSettings(**settings), CPU) for layers in (comfy, diffusers))
        chosen = {d.layer.name: (d.weight is not None, d.reason, d.error) for d in ours.all}
        assert chosen == {names[d.layer.name]: (d.weight is not None, d.reason, d.error) for d in theirs.all}
        found |= {d.reason for d in ours.all}
        assert ours.quantized or settings.get("preset")
    assert "it embeds or modulates: little work, much effect" in found


def test_a_preset_keeps_the_same_layers_of_the_same_transformer():
    """Names as ComfyUI itself maps them. The reason can have other words: an embedder can be a first layer too."""
    from comfy import utils

    for names in (
        utils.flux_to_diffusers({"depth": 2, "depth_single_blocks": 2, "hidden_size": 64}),
        utils.mmdit_to_diffusers({"depth": 2, "num_blocks": 2, "hidden_size": 64}),
        utils.z_image_to_diffusers({"n_layers": 2, "n_refiner_layers": 1, "dim": 64}),
    ):
        pairs = [(ours, comfy if isinstance(comfy, str) else comfy[0]) for ours, comfy in names.items()]
        layers = {tuple(name.removesuffix(".weight") for name in pair) for pair in pairs if pair[0].endswith(".weight")}
        kept = {pair for pair in layers if protected_because(pair[0])}
        assert kept == {pair for pair in layers if protected_because(pair[1])}
        assert 5 < len(kept) < len(layers)
