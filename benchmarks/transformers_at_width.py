"""Diffusion transformers at their true width with random weights, in ComfyUI; fewer layers than the real ones.

A step of so wide a network takes as long per layer as that of the real one, and fits beside its variants on one GPU.
One is narrower than that, for processors.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any

import torch
from record import ROOT
from unets import with_patcher

sys.path.insert(0, str(ROOT / "tools"))
from comfy_host.in_process import bootstrap  # noqa: E402
from comfy_host.weights import fill  # noqa: E402


@dataclass(frozen=True)
class Wide:
    """One of them.

    Attributes:
        name: what a person reads, with the share of the layers.
        config: class of ``comfy.supported_models``.
        settings: of the network.
        text: channels of the text tokens, and of the pooled text.
        narrow: what is changed for a rehearsal.
    """

    name: str
    config: str
    settings: dict[str, Any]
    text: tuple[int, int]
    narrow: dict[str, Any]


WIDE = {
    "flux": Wide(
        "Flux.1 dev with 4 of 19 double and 8 of 38 single blocks",
        "Flux",
        {
            "in_channels": 16, "out_channels": 16, "vec_in_dim": 768, "context_in_dim": 4096, "hidden_size": 3072,
            "mlp_ratio": 4.0, "num_heads": 24, "depth": 4, "depth_single_blocks": 8, "axes_dim": [16, 56, 56],
            "theta": 10000, "patch_size": 2, "qkv_bias": True, "guidance_embed": True, "txt_ids_dims": [],
        },
        (4096, 768),
        {"hidden_size": 32, "num_heads": 2, "axes_dim": [4, 6, 6], "depth": 1, "depth_single_blocks": 1},
    ),
    "sd35": Wide(
        "SD3.5 large with 8 of 38 blocks",
        "SD3",
        {
            "in_channels": 16, "patch_size": 2, "depth": 38, "num_blocks": 8, "input_size": None,
            "adm_in_channels": 2048, "pos_embed_scaling_factor": None, "qk_norm": "rms",
            "context_embedder_config": {
                "target": "torch.nn.Linear", "params": {"in_features": 4096, "out_features": 2432},
            },
        },
        (4096, 2048),
        {
            "depth": 2, "num_blocks": 2,
            "context_embedder_config": {
                "target": "torch.nn.Linear", "params": {"in_features": 4096, "out_features": 128},
            },
        },
    ),
}  # fmt: skip
WIDE["flux-512"] = replace(
    WIDE["flux"],
    name="Flux.1 dev with 512 of 3072 channels, 4 of 19 double and 8 of 38 single blocks",
    settings=WIDE["flux"].settings | {"hidden_size": 512, "num_heads": 8, "axes_dim": [16, 24, 24]},
)


def transformer(layout: str, dtype: torch.dtype, cpu: bool, narrow: bool = False, disable_dynamic: bool = False) -> Any:
    """Return a MODEL of ``WIDE``."""
    bootstrap(cpu=cpu)
    import comfy.model_management
    import comfy.supported_models

    wide = WIDE[layout]
    config = getattr(comfy.supported_models, wide.config)({**wide.settings, **(wide.narrow if narrow else {})})
    config.set_inference_dtype(dtype, None)
    base = config.get_model({}, "", device=torch.device("cpu")).eval()
    device = comfy.model_management.get_torch_device()
    fill(base.diffusion_model, seed=0, device="cuda" if device.type == "cuda" else "cpu")
    return with_patcher(base, device, transformer, (layout, dtype, cpu, narrow), disable_dynamic)


def conditioning(layout: str, tokens: int = 256, seed: int = 0) -> list[list[Any]]:
    """Return random conditioning that fits: ``[1, tokens, channels]`` and ``[1, channels]``."""
    channels, pooled = WIDE[layout].text
    generator = torch.Generator().manual_seed(seed)
    text = torch.randn(1, tokens, channels, generator=generator)
    return [[text, {"pooled_output": torch.randn(1, pooled, generator=generator)}]]
