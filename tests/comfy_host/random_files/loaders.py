"""What ComfyUI's loaders give for files of no content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from .. import checkpoints, transformers
from ..transformer_settings import POOLED_CHANNELS, QWEN, TEXT_CHANNELS
from ..weights import fill, random_state_dict
from . import codecs
from .table import CODECS, MARK, NETWORKS, found

_TOKENS = 20


def install() -> None:
    """Let ComfyUI's loaders know such files. All others are loaded as before."""
    import comfy.clip_vision
    import comfy.controlnet
    import comfy.sd
    import comfy.utils

    comfy.sd.load_diffusion_model = _or_else(comfy.sd.load_diffusion_model, _diffusion_model)
    comfy.sd.load_checkpoint_guess_config = _or_else(comfy.sd.load_checkpoint_guess_config, _checkpoint)
    comfy.sd.load_clip = _or_else(comfy.sd.load_clip, _clip)
    comfy.controlnet.load_controlnet = _or_else(comfy.controlnet.load_controlnet, _controlnet)
    comfy.clip_vision.load = _or_else(comfy.clip_vision.load, _vision)
    _install_upscaler(comfy.utils)
    _install_vae(comfy.sd.VAE)
    _install_lora(comfy.sd)


def _or_else(loader: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    def load(path: Any = None, *more: Any, **named: Any) -> Any:
        paths = named.pop("ckpt_paths", None) or path
        first = paths[0] if isinstance(paths, list) else paths
        if name_in(first) is None:
            return loader(paths, *more, **named)
        return ours(paths, **named)

    return load


def name_in(path: str) -> str | None:
    """Return the name that a file of no content holds; None for any other file."""
    from safetensors import safe_open

    if Path(path).suffix not in (".safetensors", ".sft"):
        return None
    with safe_open(path, "pt") as file:
        return (file.metadata() or {}).get(MARK)


def _diffusion_model(path: str, **_: Any) -> Any:
    file = name_in(path)
    name, settings = found(str(file), NETWORKS)
    seed = int(_digest(file)[:4], 16)
    return network(name, seed, **settings)


def network(name: str, seed: int = 0, **settings: Any) -> Any:
    """Return a MODEL of a name in ``NETWORKS``. SDXL's stands for its refiner too."""
    unets = {"sd15": checkpoints.tiny_sd15, "sdxl": checkpoints.sdxl_layout}
    if name in unets:
        return unets[name](seed=seed, context=TEXT_CHANNELS)
    return transformers.build(name, seed, **settings)


def _checkpoint(path: str, **_: Any) -> tuple[Any, Any, Any, Any]:
    import comfy.sd

    vae = comfy.sd.VAE(sd={MARK: torch.zeros(1)}, metadata={MARK: name_in(path)})
    return _diffusion_model(path), _text_encoder(found(str(name_in(path)), NETWORKS)[0]), vae, _vision(path)


def _controlnet(path: str, **_: Any) -> Any:
    """Return a small ControlNet of Qwen-Image; for inpainting it is given a mask too."""
    import comfy.controlnet
    import comfy.latent_formats
    import comfy.ops
    from comfy.ldm.qwen_image.controlnet import QwenImageControlNetModel

    file = str(name_in(path))
    name, _settings = found(file, NETWORKS)
    if name != "qwen_image":
        raise LookupError(f"No small ControlNet stands for {file}: add it to {__file__}.")
    inpaints = "inpaint" in file.lower()
    network = QwenImageControlNetModel(4 if inpaints else 0, operations=comfy.ops.manual_cast, **QWEN)
    fill(network, seed=1)
    latents = comfy.latent_formats.Wan21()
    return comfy.controlnet.ControlNet(network, compression_ratio=1, latent_format=latents, concat_mask=inpaints)


def _digest(text: Any) -> str:
    return hashlib.sha256(str(text).encode()).hexdigest()


class _TextEncoder(torch.nn.Module):
    """Random numbers that depend on the text alone, as wide as the small networks want them."""

    dtypes = (torch.float32,)

    def __init__(self, more: Mapping[str, Any], pooled: int, **_: Any) -> None:
        super().__init__()
        self.pooled = pooled
        self.more = more
        self.weight = torch.nn.Parameter(torch.ones(1))

    def set_clip_options(self, options: Mapping[str, Any]) -> None:
        """Take no options: there are no layers to choose from."""

    def reset_clip_options(self) -> None:
        """Do nothing, as above."""

    def encode_token_weights(self, tokens: Mapping[str, str]) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
        generator = torch.Generator().manual_seed(int(_digest(tokens["text"])[:8], 16))
        text = torch.randn(1, _TOKENS, TEXT_CHANNELS, generator=generator)
        return text, torch.randn(1, self.pooled, generator=generator), dict(self.more)

    def generate(self, tokens: Mapping[str, str], **_: Any) -> str:
        return tokens["text"]


class _Tokenizer:
    def __init__(self, **_: Any) -> None:
        pass

    def tokenize_with_weights(self, text: str, return_word_ids: bool = False, **_: Any) -> dict[str, str]:
        return {"text": text}

    def decode(self, tokens: str, **_: Any) -> str:
        return tokens

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {}


def _clip(paths: Any, clip_type: Any = None, **_: Any) -> Any:
    return _text_encoder(getattr(clip_type, "name", "").lower())


def _text_encoder(network: str) -> Any:
    """Return a CLIP that gives what a network of ``transformers.ALL`` needs; for all others text alone."""
    import comfy.sd

    more: dict[str, Any] = {}
    if network in transformers.ALL:
        entry = transformers.ALL[network]
        more = {name: value for name, value in entry.more().items() if isinstance(value, torch.Tensor)}
        more |= {"attention_mask": torch.ones(1, _TOKENS, dtype=torch.long)} if entry.masked else {}
    wanted = {"more": more, "pooled": 1280 if network == "sdxl" else POOLED_CHANNELS}
    return comfy.sd.CLIP(SimpleNamespace(params=wanted, clip=_TextEncoder, tokenizer=_Tokenizer))


class _Vision:
    def __init__(self, width: int) -> None:
        self.width = width

    def encode_image(self, image: torch.Tensor, crop: bool = True) -> Any:
        import comfy.clip_vision

        generator = torch.Generator().manual_seed(5)
        states = torch.randn(image.shape[0], 257, self.width, generator=generator)
        output = comfy.clip_vision.Output()
        output["penultimate_hidden_states"] = output["last_hidden_state"] = states
        output["image_embeds"] = states[:, 0]
        return output


def _vision(path: str, **_: Any) -> _Vision:
    return _Vision(1152 if "sigclip" in str(name_in(path)) else 1280)


def _install_vae(vae: Any) -> None:
    make = vae.__init__

    def init(self: Any, sd: Any = None, *more: Any, metadata: Any = None, **named: Any) -> None:
        name = (metadata or {}).get(MARK)
        if name is None:
            make(self, sd, *more, metadata=metadata, **named)
            return
        if MARK not in sd:  # LTXVAudioVAELoader takes only what belongs to sound
            name += " sound"
        make(self, {"pixel_space_vae": torch.tensor(1.0)}, dtype=torch.float32)
        codecs.shape(self, found(name, CODECS))

    vae.__init__ = init


def _install_lora(sd: Any) -> None:
    load = sd.load_lora_for_models

    def load_lora(model: Any, clip: Any, lora: Any, *more: Any, **named: Any) -> Any:
        return load(model, clip, _lora(model) if MARK in lora else lora, *more, **named)

    sd.load_lora_for_models = load_lora


def _lora(model: Any) -> dict[str, torch.Tensor]:
    """Return a LoRA of rank 1 for every matrix of a model."""
    tensors = {}
    generator = torch.Generator().manual_seed(9)
    for name, weight in model.model.diffusion_model.state_dict().items():
        if name.endswith(".weight") and weight.ndim == 2:
            key, (rows, columns) = f"diffusion_model.{name.removesuffix('.weight')}", weight.shape
            tensors[f"{key}.lora_A.weight"] = torch.randn(1, columns, generator=generator) / columns**0.5
            tensors[f"{key}.lora_B.weight"] = torch.randn(rows, 1, generator=generator) * 0.1
    return tensors


def _install_upscaler(utils: Any) -> None:
    load = utils.load_torch_file

    def load_file(path: str, *more: Any, **named: Any) -> Any:
        if Path(path).parent.name != "latent_upscale_models" or name_in(path) is None:
            return load(path, *more, **named)
        return _upscaler()

    utils.load_torch_file = load_file


def _upscaler() -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return weights and metadata of a small network that doubles LTX's latents."""
    import comfy.ops
    from comfy.ldm.lightricks.latent_upsampler import LatentUpsampler

    config = {"in_channels": 128, "mid_channels": 32, "num_blocks_per_stage": 1, "dims": 3}
    network = LatentUpsampler(operations=comfy.ops.disable_weight_init, **config)
    return random_state_dict(network.state_dict(), seed=0), {"config": json.dumps(config)}
