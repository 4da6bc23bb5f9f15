"""The networks of the icon models: ComfyUI's own classes with a table of words, how they start, and how they are saved.

A UNet as Stable Diffusion 1.5's in small; NextDiT (Lumina 2, Z-Image) and Wan in small, which learn by flow matching.
NextDiT's pictures of 64 x 64 have 1,024 tokens. Smaller ones are seen as the same picture from farther away: tokens
stand farther apart, and a noise level is called by that of 64 x 64 at which as much of the picture can be seen. So what
is learned of few tokens is known of many, and most of the training can be done where a step costs a sixteenth.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import icon_data
import torch
from comfy_host import in_process
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

SIDE = 64
"""Of the pictures that the finished image transformer draws."""
CONTEXT = 128
"""Channels of a word."""
PREFIX = "model.diffusion_model."
V_PREDICTION = {"prediction": "v_prediction", "schedule": "scaled linear 0.00085 to 0.012, 1000 steps"}


def as_of(level: Tensor, times: float) -> Tensor:
    """Return the noise level of flow matching at which noise is so many times as strong beside the picture."""
    return times * level / (1 + (times - 1) * level)


def _unet(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "image_size": args.size, "in_channels": 4, "out_channels": 4, "model_channels": 32, "channel_mult": [1, 2, 4],
        "num_res_blocks": [1] * 3, "use_spatial_transformer": True, "transformer_depth": [1] * 3,
        "transformer_depth_output": [0, 0, 1, 1, 1, 1], "transformer_depth_middle": 1, "num_heads": -1,
        "num_head_channels": 32, "context_dim": CONTEXT, "legacy": False, "use_linear_in_transformer": False,
    }  # fmt: skip


def _lumina(args: argparse.Namespace) -> dict[str, Any]:
    head = args.channels // args.heads
    across = head * 3 // 16 * 2  # of a head, for each direction in the picture
    return {
        "image_model": "lumina2", "patch_size": 2, "in_channels": 4, "dim": args.channels, "cap_feat_dim": CONTEXT,
        "n_layers": args.blocks, "n_refiner_layers": 1, "n_heads": args.heads, "n_kv_heads": args.heads,
        "multiple_of": 64, "ffn_dim_multiplier": 8 / 3, "qk_norm": True,
        "axes_dims": [head - 2 * across, across, across], "axes_lens": [64, 512, 512], "rope_theta": 10000.0,
        "time_scale": 1000.0, "side": args.size,  # which the class does not read, but the loader does
    }  # fmt: skip


def _wan(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "image_model": "wan2.1", "model_type": "t2v", "patch_size": [1, 2, 2], "in_dim": 4, "out_dim": 4,
        "dim": args.channels, "ffn_dim": 4 * args.channels, "freq_dim": 128, "text_dim": CONTEXT,
        "num_heads": args.heads, "num_layers": args.blocks,
    }  # fmt: skip


def _in_lumina(network: nn.Module, noisy: Tensor, level: Tensor, text: Tensor) -> Tensor:
    apart = SIDE / noisy.shape[-1]
    middle = (apart - 1) / 2
    grid = {"scale_x": apart, "scale_y": apart, "shift_x": middle, "shift_y": middle}
    with _attention_for(noisy.device):
        return network(noisy, as_of(level, apart), text, text.shape[1], transformer_options={"rope_options": grid})


def _in_wan(network: nn.Module, noisy: Tensor, level: Tensor, text: Tensor) -> Tensor:
    with _attention_for(noisy.device):
        return network(noisy, level * 1000, context=text)


def _attention_for(device: torch.device) -> AbstractContextManager[None]:
    """Return what chooses an attention: on processor cores the gradient of the fused one took two fifths of a step."""
    return sdpa_kernel(SDPBackend.MATH) if device.type == "cpu" else nullcontext()


KINDS: dict[str, tuple[str, Callable[..., dict[str, Any]], Callable[..., Tensor], tuple[str, ...]]] = {
    "icons": (
        "modules.diffusionmodules.openaimodel:UNetModel", _unet,
        lambda network, noisy, step, text: network(noisy, step.float(), context=text), (),
    ),
    "icons-lumina": ("lumina.model:NextDiT", _lumina, _in_lumina, ("adaLN", "final_layer")),
    "icons-video": ("wan.model:WanModel", _wan, _in_wan, ("cross_attn.o", "head.head", "time_projection.1")),
}  # fmt: skip
"""Class in ``comfy.ldm``, settings, how it is called, and layers that are zero at the start: blocks change nothing."""


class Net(nn.Module):
    """A network of one of ``KINDS`` and its table of ``words``; ``settings`` go into the file of its weights."""

    def __init__(self, kind: str, settings: dict[str, Any], words: dict[str, int], device: torch.device) -> None:
        super().__init__()
        in_process.bootstrap(cpu=device.type == "cpu")
        import comfy.model_management
        import comfy.ops

        comfy.model_management.in_training = True  # ComfyUI's kernel for rotary embeddings has no gradient
        network, _, self._run, silent = KINDS[kind]
        operations = comfy.ops.disable_weight_init
        self.unet = resolve_name(f"comfy.ldm.{network}")(**settings, dtype=torch.float32, operations=operations)
        (_initialise_flow if silent else _initialise_unet)(self.unet, *silent)
        self.settings, self.words = settings, words
        self.embedding = nn.Parameter(torch.randn(len(words), CONTEXT))
        self.position = nn.Parameter(torch.randn(icon_data.TOKENS, CONTEXT) * 0.1)

    def forward(self, noisy: Tensor, level: Tensor, captions: list[str]) -> Tensor:
        """Predict v, or of flow matching noise - picture, of pictures [B, 4, (F,) H, W] at steps, or levels in 0..1."""
        ids = torch.tensor([icon_data.tokenize(text, self.words) for text in captions], device=noisy.device)
        return self._run(self.unet, noisy, level, self.embedding[ids] + self.position)

    def warm_start(self, path: Path) -> None:
        """Start from weights of the same width; words that the file does not know keep their random rows.

        Where it has fewer blocks, they are spread evenly, and those between them stay as they are: a transformer's
        start as the identity, so that it predicts what the smaller one did.
        """
        with safe_open(path, "pt") as file:
            rows = json.loads(file.metadata()["vocabulary"])
            state = {key: file.get_tensor(key).float() for key in file.keys()}  # noqa: SIM118
        weights = {key.removeprefix(PREFIX): value for key, value in state.items() if key.startswith(PREFIX)}
        for name, blocks in self.unet.named_children():
            old = len({key.split(".")[1] for key in weights if key.startswith(f"{name}.")})
            if not isinstance(blocks, nn.ModuleList) or not 0 < old < len(blocks):
                continue
            places = [round((i + 0.5) * len(blocks) / old - 0.5) for i in range(old)]
            for i, place in reversed(tuple(enumerate(places))):
                for key in [key for key in weights if key.startswith(f"{name}.{i}.")]:
                    weights[f"{name}.{place}.{key.split('.', 2)[2]}"] = weights.pop(key)
            for i in set(range(len(blocks))).difference(places):
                weights |= {f"{name}.{i}.{key}": value for key, value in blocks[i].state_dict().items()}
        self.unet.load_state_dict(weights)
        with torch.no_grad():
            self.position.copy_(state["text.position"])
            for word in self.words.keys() & rows.keys():
                self.embedding[self.words[word]] = state["text.embedding"][rows[word]]

    def compile_blocks(self) -> None:
        """Compile each block of a transformer by itself."""
        for block in self.unet.layers if hasattr(self.unet, "layers") else self.unet.blocks:
            block.forward = torch.compile(block.forward, dynamic=False)

    def save(self, path: Path, averaged: list[Tensor], facts: dict[str, Any]) -> None:
        """Write ``averaged`` weights in half precision with everything that a loader has to know in the metadata."""
        kept = dict(zip((name for name, _ in self.named_parameters()), averaged, strict=True))
        whole = {name: kept.get(name, value) for name, value in self.state_dict().items()}
        tensors = {
            name.replace("unet.", PREFIX, 1) if name.startswith("unet.") else f"text.{name}":
            value.detach().to("cpu", torch.float16).contiguous() for name, value in whole.items()
        }  # fmt: skip
        metadata = {
            "format": "pt", "config": json.dumps(self.settings), "vocabulary": json.dumps(self.words),
            "images": icon_data.CREDIT, "torch": torch.__version__,
            **({"prediction": "flow", "schedule": "flow"} if "image_model" in self.settings else V_PREDICTION),
            **{key: str(value) for key, value in facts.items()},
        }  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        save_file(tensors, partial, metadata)
        partial.replace(path)  # a reader never sees half a file


def trained(kind: str, path: Path, device: torch.device) -> Net:
    """Return the network of a file of weights."""
    with safe_open(path, "pt") as file:
        facts = file.metadata()
    net = Net(kind, json.loads(facts["config"]), json.loads(facts["vocabulary"]), device)
    net.warm_start(path)
    return net.to(device, memory_format=torch.channels_last)


def _initialise_unet(network: nn.Module) -> None:
    """Give parameters torch's default start: ComfyUI's operations expect a checkpoint and leave them as they are."""
    for name, module in network.named_modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.kaiming_uniform_(module.weight, a=math.sqrt(5))
            if module.bias is not None:
                bound = 1.0 / math.sqrt(module.weight[0].numel())
                nn.init.uniform_(module.bias, -bound, bound)
        elif isinstance(module, nn.GroupNorm | nn.LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        # Every residual branch starts silent, so that the untrained network is close to the identity.
        if name.endswith((".out_layers.3", ".proj_out")) or name == "out.2":
            nn.init.zeros_(module.weight)
            nn.init.zeros_(module.bias)


def _initialise_flow(network: nn.Module, *silent: str) -> None:
    for name, module in network.named_modules():
        if isinstance(module, nn.Linear | nn.Conv3d):
            start = nn.init.zeros_ if any(part in name for part in silent) else nn.init.xavier_uniform_
            start(module.weight.data.flatten(1))
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.RMSNorm | nn.LayerNorm) and module.weight is not None:
            nn.init.ones_(module.weight)
            if isinstance(module, nn.LayerNorm):
                nn.init.zeros_(module.bias)
    for name, parameter in network.named_parameters():
        if name.endswith("modulation"):  # of Wan, a table
            nn.init.zeros_(parameter)
