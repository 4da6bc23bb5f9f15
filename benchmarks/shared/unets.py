"""UNets of the real sizes with random weights, in ComfyUI: speed does not depend on what was learned."""

from __future__ import annotations

from typing import Any

import torch
from comfy_host.checkpoints import SD15_CONFIG, SDXL_CONFIG, _base_model
from comfy_host.in_process import bootstrap
from comfy_host.weights import fill

SD15: dict[str, Any] = SD15_CONFIG | {
    "num_res_blocks": [2, 2, 2, 2],
    "channel_mult": [1, 2, 4, 4],
    "transformer_depth": [1, 1, 1, 1, 1, 1, 0, 0],
    "transformer_depth_output": [1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0],
    "num_heads": 8,
    "num_head_channels": -1,
}
"""What ComfyUI detects in the real SD1.5 checkpoint."""

SDXL: dict[str, Any] = SDXL_CONFIG | {"num_heads": -1, "num_head_channels": 64}
"""What ComfyUI detects in the real SDXL checkpoint, but for its width."""


def unet(layout: str, width: int = 320, dtype: torch.dtype | None = None, disable_dynamic: bool = False) -> Any:
    """Return a MODEL, on a GPU where there is one.

    Args:
        layout: ``SD1.5`` or ``SDXL``.
        width: channels of the first level; 320 is the real size.
        dtype: of the weights; else fp16 on a GPU and fp32 on a processor.
        disable_dynamic: without dynamic VRAM; ComfyUI asks loaders for that, and so it can ask this one.
    """
    on_gpu = torch.cuda.is_available()
    dtype = dtype or (torch.float16 if on_gpu else torch.float32)
    bootstrap(cpu=not on_gpu)
    import comfy.model_management
    import comfy.model_patcher as patchers
    import comfy.supported_models

    if layout == "SD1.5":
        config_class, config = comfy.supported_models.SD15, SD15
    else:
        config_class, config = comfy.supported_models.SDXL, SDXL | {"num_head_channels": min(64, width)}
    base = _base_model(config_class, config | {"model_channels": width}, dtype, "cpu").eval()
    device = comfy.model_management.get_torch_device()
    fill(base.diffusion_model, seed=0, device=device.type)
    patcher_class = patchers.ModelPatcher if disable_dynamic else patchers.CoreModelPatcher
    patcher = patcher_class(base, device, comfy.model_management.unet_offload_device())
    patcher.cached_patcher_init = (unet, (layout, width, dtype))
    return patcher
