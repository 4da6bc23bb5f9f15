"""Apply ToMe on the relatives of SD 1.x and SDXL that share ComfyUI's UNet class, small and with random weights."""

from __future__ import annotations

import pytest
import torch
from cases import often
from comfy_host import checkpoints, in_process

LEVELS = {"num_res_blocks": [1, 1], "channel_mult": [1, 2]}
PLAIN = checkpoints.SD15_CONFIG | LEVELS | {"model_channels": 32, "context_dim": 48}
SD2 = PLAIN | {"use_linear_in_transformer": True}
REFINER = checkpoints.SDXL_CONFIG | {
    "model_channels": 32,
    "context_dim": 48,
    "adm_in_channels": 2560,
    "num_res_blocks": [1, 1, 1, 1],
    "channel_mult": [1, 2, 4, 4],
    "transformer_depth": [0, 4, 4, 0],
    "transformer_depth_output": [0, 0, 4, 4, 4, 4, 0, 0],
    "transformer_depth_middle": 4,
}
SVD = SD2 | {
    "in_channels": 8,
    "num_classes": "sequential",
    "adm_in_channels": 768,
    "use_temporal_attention": True,
    "use_temporal_resblock": True,
    "video_kernel_size": [3, 1, 1],
    "extra_ff_mix_layer": True,
    "use_spatial_context": True,
    "merge_strategy": "learned_with_images",
}

MODELS = {
    "SD15 inpaint": ("SD15", PLAIN | {"in_channels": 9}),
    "instruct-pix2pix": ("SD15_instructpix2pix", PLAIN | {"in_channels": 8}),
    "SD 2.x": ("SD20", SD2),
    "SDXL refiner": ("SDXLRefiner", REFINER),
    "SVD": ("SVD_img2vid", SVD),
}


@pytest.fixture(scope="module")
def unets(studio):
    made = {}

    def get(name):
        if name not in made:
            import comfy.supported_models

            config, settings = MODELS[name]
            base = getattr(comfy.supported_models, config)
            narrow = type(config, (base,), {"unet_extra_config": {"num_heads": -1, "num_head_channels": 16}})
            made[name] = checkpoints._patcher(checkpoints._base_model(narrow, dict(settings), torch.float32, "cpu"), 0)
        return made[name]

    return get


def sample(model, frames=1):
    generator = torch.Generator().manual_seed(1)
    positive, negative = (
        [[torch.randn(1, 77, 48, generator=generator), {"pooled_output": torch.randn(1, 1280, generator=generator)}]]
        for _ in range(2)
    )
    return in_process.sample(model, positive, negative, torch.zeros(frames, 4, 24, 16), steps=1, seed=7)


BOTH = [(name, method) for method in ("merge", "kv_downsample") for name in MODELS]


# Each relative with every change, and each method with two of them.
@pytest.mark.parametrize(("name", "method"), often([*BOTH[:2], *BOTH[7:]], BOTH, several=True))
def test_every_unet_of_the_family_is_served(studio, unets, name, method):
    frames = 3 if name == "SVD" else 1
    baseline = sample(unets(name), frames)
    model = studio.tome(unets(name), method=method, ratio=0.5)
    reduced = sample(model, frames)
    report = studio.report(model)
    assert reduced.isfinite().all() and not torch.equal(reduced, baseline)
    assert "active in " in report and "self-attention blocks" in report and "fallback" not in report
    assert ("96 -> " if name == "SDXL refiner" else "384 -> ") in report  # which has none at the latent's own size
