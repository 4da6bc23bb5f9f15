"""Models with random weights, small enough for a CPU and real enough for ComfyUI's own loaders.

The same call gives the same weights. The images are noise; every class, key and shape is real.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from .weights import fill, random_state_dict, save, unet_gain

SD15_CONFIG: dict[str, Any] = {
    "image_size": 32, "in_channels": 4, "out_channels": 4, "use_spatial_transformer": True, "legacy": False,
    "adm_in_channels": None, "model_channels": 320, "num_res_blocks": [1, 1], "channel_mult": [1, 2],
    "transformer_depth": [1, 1], "transformer_depth_output": [1, 1, 1, 1], "transformer_depth_middle": 1,
    "use_linear_in_transformer": False, "context_dim": 768, "use_temporal_resblock": False,
    "use_temporal_attention": False,
}  # fmt: skip
"""What ComfyUI detects as SD1.5: two levels instead of four, one residual block each instead of two.

The attention blocks are those of the real model: 320 channels at the latent's own size, 640 at half of it, 8 heads.
"""

_IN_FILES = SD15_CONFIG | {"channel_mult": [1, 1]}
"""Of the checkpoint, the ControlNet and the LoRA: 320 channels at both levels, which is half of the work."""

SDXL_CONFIG: dict[str, Any] = {
    "image_size": 32, "in_channels": 4, "out_channels": 4, "use_spatial_transformer": True, "legacy": False,
    "num_classes": "sequential", "adm_in_channels": 2816, "num_res_blocks": [2, 2, 2], "channel_mult": [1, 2, 4],
    "transformer_depth": [0, 0, 2, 2, 10, 10], "transformer_depth_output": [0, 0, 0, 2, 2, 2, 10, 10, 10],
    "transformer_depth_middle": 10, "use_linear_in_transformer": True, "context_dim": 2048,
    "use_temporal_resblock": False, "use_temporal_attention": False,
}  # fmt: skip
"""SDXL's block structure, with 70 self-attention blocks; the width is an argument."""

# The sampler hands over latents of a standard deviation near 80 (the noise is never removed: the weights are
# random). TAESD's own scale brings them to where its tanh still tells them apart.
_LATENT_SCALE = 0.02


def _base_model(config_class: Any, config: dict[str, Any], dtype: torch.dtype, device: str) -> Any:
    """Return ComfyUI's own BaseModel for ``config``, its weights uninitialised."""
    import comfy.memory_management

    model_config = config_class(config)
    model_config.unet_config |= config  # over what the class takes for granted
    model_config.set_inference_dtype(dtype, None)
    # With dynamic VRAM layers have no weights until a file is read.
    with patch.object(comfy.memory_management, "aimdo_enabled", False):
        return model_config.get_model({}, "", device=torch.device(device))


def _patcher(base_model: Any, seed: int, device: str = "cpu") -> Any:
    import comfy.model_management
    import comfy.model_patcher

    fill(base_model.diffusion_model, seed, device=device)
    return comfy.model_patcher.CoreModelPatcher(
        base_model.eval(),
        load_device=comfy.model_management.get_torch_device(),
        offload_device=comfy.model_management.unet_offload_device(),
    )


def _narrow() -> Any:
    """Return ComfyUI's class for SD1.5 with four heads at any width."""
    import comfy.supported_models

    heads = {"num_heads": 4, "num_head_channels": -1}
    return type("Narrow", (comfy.supported_models.SD15,), {"unet_extra_config": heads})


def tiny_sd15(seed: int = 0, width: int = 64, context: int = 64, dtype: torch.dtype = torch.float32) -> Any:
    """Return a MODEL with SD1.5's blocks, narrow, without a file. Needs ``in_process.bootstrap()``.

    ``width``: channels of the first level, a multiple of 32 (SD1.5: 320); ``context``: of the text (SD1.5: 768).
    """
    config = SD15_CONFIG | {"model_channels": width, "context_dim": context}
    return _patcher(_base_model(_narrow(), config, dtype, "cpu"), seed)


def _few_blocks(levels: int) -> dict[str, Any]:
    """Return SD1.5's configuration with one residual block on each of one or two levels."""
    config = SD15_CONFIG | {"num_res_blocks": [1] * levels, "channel_mult": [1, 2][:levels]}
    config |= {"transformer_depth": [1, 0][:levels], "transformer_depth_output": [1, 0, 0, 0][: 2 * levels]}
    return config | {"transformer_depth_middle": 1 if levels > 1 else -2}


def smallest_unet(
    seed: int = 0, width: int = 32, context: int = 48, levels: int = 1, dtype: torch.dtype = torch.float32
) -> Any:
    """Return a MODEL with one level of SD1.5 and two transformer blocks: what compiles in the shortest time.

    ``levels``: 2 adds a level without transformers, and a middle block with one; the rest as of `tiny_sd15`.
    """
    config = _few_blocks(levels) | {"model_channels": width, "context_dim": context}
    return _patcher(_base_model(_narrow(), config, dtype, "cpu"), seed)


def fitting_controlnet(unet: dict[str, Any], seed: int = 3) -> Any:
    """Return a CONTROL_NET with random weights for a UNet of SD1.5's layout, of which this is the configuration."""
    import comfy.cldm.cldm
    import comfy.controlnet
    import comfy.model_management
    import comfy.ops

    of_its_own = {"num_heads": 4, "hint_channels": 3, "operations": comfy.ops.disable_weight_init}
    network = comfy.cldm.cldm.ControlNet(**_of_a_controlnet(unet), **of_its_own, dtype=torch.float32, device="cpu")
    fill(network, seed)
    return comfy.controlnet.ControlNet(network.eval(), load_device=comfy.model_management.get_torch_device())


def _of_a_controlnet(unet: dict[str, Any]) -> dict[str, Any]:
    without = ("out_channels", "transformer_depth_output")
    return {name: unet[name] for name in SD15_CONFIG if name in unet and name not in without}


def smallest_controlnet() -> Any:
    """Return a CONTROL_NET that fits :func:`smallest_unet`."""
    return fitting_controlnet(smallest_unet().model.model_config.unet_config, seed=0)


def sdxl_layout(
    width: int = 64, seed: int = 0, head_channels: int = 32, context: int = 2048, dtype: torch.dtype = torch.float32
) -> Any:
    """Return a MODEL with SDXL's 70 self-attention blocks, narrow, without a file.

    ``width`` as of `tiny_sd15`; ``head_channels``: of an attention head (SDXL: 64).
    """
    import comfy.supported_models

    class Narrow(comfy.supported_models.SDXL):
        unet_extra_config = {"num_heads": -1, "num_head_channels": head_channels}

    config = SDXL_CONFIG | {"model_channels": width, "context_dim": context}
    return _patcher(_base_model(Narrow, config, dtype, "cpu"), seed)


def taesd_state_dict(seed: int = 0) -> dict[str, torch.Tensor]:
    """Return random weights of a TAESD autoencoder, ComfyUI's smallest VAE, giving images around middle grey."""
    import comfy.taesd.taesd

    with torch.device("meta"):
        shapes = comfy.taesd.taesd.TAESD(latent_channels=4).state_dict()
    # Each block adds a branch to its input and rectifies: a small branch keeps ten of them in range.
    weights = random_state_dict(shapes, seed, gain=lambda name: 0.5 if ".conv.4." in name else 1.2)
    last = max(int(name.split(".")[1]) for name in weights if name.startswith("taesd_decoder."))
    weights[f"taesd_decoder.{last}.weight"] *= 0.2
    weights[f"taesd_decoder.{last}.bias"].fill_(0.5)
    weights["vae_scale"] = torch.tensor(_LATENT_SCALE)
    weights["vae_shift"] = torch.tensor(0.0)
    return weights


def _clip_l_state_dict(seed: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    import comfy.sd1_clip

    with torch.device("meta"):
        shapes = comfy.sd1_clip.SD1ClipModel(device="meta").clip_l.transformer.state_dict()
    shapes = {name: tensor for name, tensor in shapes.items() if name.startswith("text_model.")}

    def gain(name: str) -> float:
        if "embedding" in name:
            return 0.02  # as in the real model: small embeddings, scaled up by the first norm
        return 0.02 if name.endswith(("out_proj.weight", "fc2.weight")) else 1.0

    return random_state_dict(shapes, seed, dtype, gain)


def sd15(
    path: str | Path,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    config: dict[str, Any] = _IN_FILES,
    vae: Callable[[int], dict[str, torch.Tensor]] = taesd_state_dict,
) -> Path:
    """Write a checkpoint that CheckpointLoaderSimple detects as SD1.5 and return its path.

    It holds a UNet of 44 million parameters in ``dtype``, a full CLIP-L text encoder in fp16, because its size is
    fixed, and the ``vae`` that is made from the seed. An existing file is written anew.
    """
    import comfy.supported_models

    base = _base_model(comfy.supported_models.SD15, config, dtype, "meta")
    unet = random_state_dict(base.diffusion_model.state_dict(), seed, dtype, unet_gain)
    tensors = {f"model.diffusion_model.{name}": tensor for name, tensor in unet.items()}
    for name, tensor in _clip_l_state_dict(seed, torch.float16).items():
        tensors[f"cond_stage_model.transformer.{name}"] = tensor
    for name, tensor in vae(seed).items():
        tensors[f"first_stage_model.{name}"] = tensor
    return save(tensors, Path(path))


def sd15_smallest(path: str | Path) -> Path:
    """Write a checkpoint like that of `sd15` whose UNet has two transformer blocks of the real width."""
    return sd15(path, config=_few_blocks(1))


def controlnet(path: str | Path, seed: int = 0, dtype: torch.dtype = torch.float32) -> Path:
    """Write a ControlNet that fits ``sd15`` in the original (cldm) format and return its path."""
    import comfy.cldm.cldm

    sizes = {**_of_a_controlnet(_IN_FILES), "num_heads": 8, "hint_channels": 3}
    with torch.device("meta"):
        shapes = comfy.cldm.cldm.ControlNet(**sizes, dtype=dtype, device="meta").state_dict()
    tensors = random_state_dict(shapes, seed, dtype, lambda name: 0.1 if "zero_convs" in name else unet_gain(name))
    return save(tensors, Path(path))


def lora(path: str | Path, rank: int = 4, seed: int = 0, strength: float = 0.1) -> Path:
    """Write a LoRA in kohya's format for every attention and feed-forward layer of ``sd15`` and return its path.

    ``strength`` is the size of the update relative to the weight that it is added to.
    """
    import comfy.lora
    import comfy.supported_models

    base = _base_model(comfy.supported_models.SD15, _IN_FILES, torch.float32, "meta")
    shapes = base.state_dict()
    keys = comfy.lora.model_lora_keys_unet(base, {})
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, torch.Tensor] = {}
    for lora_key, model_key in sorted(keys.items()):
        # Two names exist for each layer; kohya's follows the diffusers layout ("down_blocks" ...).
        if not lora_key.startswith(("lora_unet_down", "lora_unet_up", "lora_unet_mid")):
            continue
        if not any(part in lora_key for part in ("_attn1_", "_attn2_", "_ff_net_")):
            continue
        rows, columns = shapes[model_key].shape[:2]
        scale = (strength / (columns * rank) ** 0.5) ** 0.5
        tensors[f"{lora_key}.lora_down.weight"] = torch.randn(rank, columns, generator=generator) * scale
        tensors[f"{lora_key}.lora_up.weight"] = torch.randn(rows, rank, generator=generator) * scale
        tensors[f"{lora_key}.alpha"] = torch.tensor(float(rank))
    return save(tensors, Path(path), {"format": "pt"})
