"""UNets of the real sizes with random weights, in ComfyUI: speed does not depend on what was learned."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from .record import ROOT

sys.path.insert(0, str(ROOT / "tools"))
from comfy_host import checkpoints  # noqa: E402
from comfy_host.in_process import bootstrap  # noqa: E402
from comfy_host.weights import fill  # noqa: E402

SD15: dict[str, Any] = checkpoints.SD15_CONFIG | {
    "num_res_blocks": [2, 2, 2, 2],
    "channel_mult": [1, 2, 4, 4],
    "transformer_depth": [1, 1, 1, 1, 1, 1, 0, 0],
    "transformer_depth_output": [1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0],
}
"""What ComfyUI detects in the real SD1.5 checkpoint."""

SDXL: dict[str, Any] = checkpoints.SDXL_CONFIG
"""What ComfyUI detects in the real SDXL checkpoint, but for its width."""


def unet(
    layout: str,
    width: int = 320,
    dtype: torch.dtype = torch.float32,
    cpu: bool = True,
    disable_dynamic: bool = False,
) -> Any:
    """Return a MODEL.

    Args:
        layout: ``SD1.5`` or ``SDXL``.
        width: channels of the first level; 320 is the real size.
        dtype: of the weights.
        cpu: stay on the CPU even if there is a GPU.
        disable_dynamic: without dynamic VRAM; ComfyUI asks loaders for that, and so it can ask this one.
    """
    bootstrap(cpu=cpu)
    import comfy.model_management
    import comfy.model_patcher
    import comfy.supported_models

    if layout == "SD1.5":
        config = comfy.supported_models.SD15(SD15 | {"model_channels": width})
        config.unet_config["num_heads"], config.unet_config["num_head_channels"] = 8, -1
    else:
        config = comfy.supported_models.SDXL(SDXL | {"model_channels": width})
        config.unet_config["num_heads"], config.unet_config["num_head_channels"] = -1, min(64, width)
    config.set_inference_dtype(dtype, None)
    base = config.get_model({}, "", device=torch.device("cpu")).eval()
    device = comfy.model_management.get_torch_device()
    fill(base.diffusion_model, seed=0, device=device.type if device.type == "cuda" else "cpu")
    return with_patcher(base, device, unet, (layout, width, dtype, cpu), disable_dynamic)


def with_patcher(
    base: Any, device: torch.device, load: Callable[..., Any], again: tuple[Any, ...], disable_dynamic: bool
) -> Any:
    """Return a MODEL around a BaseModel, of the class that ComfyUI's loaders use here; ``load(*again)`` made it."""
    import comfy.model_management
    import comfy.model_patcher as patchers

    patcher_class = patchers.ModelPatcher if disable_dynamic else patchers.CoreModelPatcher
    patcher = patcher_class(base, device, comfy.model_management.unet_offload_device())
    patcher.cached_patcher_init = (load, again)
    return patcher


def step_of(model: Any, side: int) -> Callable[[], Any]:
    """Return one call of a MODEL's network, as the sampler makes it."""
    base, batch = model.model, 2
    inputs = {"c_crossattn": torch.randn(batch, 77, base.model_config.unet_config["context_dim"])}
    if base.adm_channels:
        inputs["y"] = torch.randn(batch, base.adm_channels)
    options = {
        **model.model_options["transformer_options"],
        "wrappers": model.wrappers,
        "callbacks": model.callbacks,
        "cond_or_uncond": [0, 1],
        "sample_sigmas": torch.linspace(14, 0, 31),
    }
    latent, sigmas = torch.randn(batch, 4, side, side), torch.full((batch,), 5.0)
    return lambda: base.apply_model(latent, sigmas, transformer_options=options, **inputs)
