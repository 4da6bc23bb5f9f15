"""The network of the icon models: ComfyUI's UNetModel with a table of words, how it starts, is looked at and saved."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import icon_data
import icon_words
import torch
from comfy_host import in_process
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

MIN_SNR_GAMMA = 5.0
PLAIN_LOSS_FROM = 0.6  # share of the run after which the loss weights every noise level alike


def import_unet(device: torch.device) -> tuple[type[nn.Module], Any, torch.Tensor]:
    """Import ComfyUI's UNetModel and its initialisation-free operations; also return its noise levels [1000]."""
    in_process.bootstrap(cpu=device.type == "cpu")
    import comfy.model_sampling
    import comfy.ops
    from comfy.ldm.modules.diffusionmodules.openaimodel import UNetModel

    sigmas = comfy.model_sampling.ModelSamplingDiscrete().sigmas
    return UNetModel, comfy.ops.disable_weight_init, sigmas


def unet_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Keyword arguments of UNetModel; they go into the weights file, so that the loader need not guess."""
    mult = [int(value) for value in args.mult.split(",")]
    levels = len(mult)
    return {
        "image_size": args.size,
        "in_channels": 4,
        "out_channels": 4,
        "model_channels": args.channels,
        "channel_mult": mult,
        "num_res_blocks": [1] * levels,
        "use_spatial_transformer": True,
        "transformer_depth": [1] * levels,
        "transformer_depth_output": [1 if args.top == "both" else 0] * 2 + [1] * (2 * levels - 2),
        "transformer_depth_middle": 1,
        "num_heads": args.heads or -1,
        "num_head_channels": -1 if args.heads else 32,
        "context_dim": args.context,
        "legacy": False,
        "use_linear_in_transformer": False,
    }


def initialise(unet: nn.Module) -> None:
    """Give parameters torch's default start: ComfyUI's operations expect a checkpoint and leave them as they are."""
    for module in unet.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.kaiming_uniform_(module.weight, a=math.sqrt(5))
            if module.bias is not None:
                bound = 1.0 / math.sqrt(module.weight[0].numel())
                nn.init.uniform_(module.bias, -bound, bound)
        elif isinstance(module, nn.GroupNorm | nn.LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
    # Every residual branch starts silent, so that the untrained network is close to the identity.
    for name, module in unet.named_modules():
        if name.endswith((".out_layers.3", ".proj_out")) or name == "out.2":
            nn.init.zeros_(module.weight)
            nn.init.zeros_(module.bias)


class Net(nn.Module):
    """UNet plus text table."""

    def __init__(self, unet: nn.Module, words: int, context: int) -> None:
        super().__init__()
        self.unet = unet
        self.embedding = nn.Parameter(torch.randn(words, context))
        self.position = nn.Parameter(torch.randn(icon_words.TOKENS, context) * 0.1)

    def forward(self, noisy: torch.Tensor, step: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Predict v for noisy pictures [B, 4, H, W], schedule steps [B] and word ids [B, TOKENS]."""
        return self.unet(noisy, step.float(), context=self.embedding[ids] + self.position)


def warm_start(net: Net, path: Path, words: dict[str, int]) -> None:
    """Start from another weights file, of the same width; words that it does not know keep their random rows.

    Where the file has fewer blocks, they are spread evenly, and those between them stay as they are: a transformer's
    start as the identity, so that it predicts what the smaller one did.
    """
    with safe_open(path, "pt") as file:
        rows = json.loads(file.metadata()["vocabulary"])
        state = {key: file.get_tensor(key).float() for key in file.keys()}  # noqa: SIM118
    prefix = "model.diffusion_model."
    weights = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
    for name, blocks in net.unet.named_children():
        old = len({key.split(".")[1] for key in weights if key.startswith(f"{name}.")})
        if not isinstance(blocks, nn.ModuleList) or not 0 < old < len(blocks):
            continue
        places = [round((i + 0.5) * len(blocks) / old - 0.5) for i in range(old)]
        for i, place in reversed(tuple(enumerate(places))):
            for key in [key for key in weights if key.startswith(f"{name}.{i}.")]:
                weights[f"{name}.{place}.{key.split('.', 2)[2]}"] = weights.pop(key)
        for i in set(range(len(blocks))).difference(places):
            weights |= {f"{name}.{i}.{key}": value for key, value in blocks[i].state_dict().items()}
    net.unet.load_state_dict(weights)
    with torch.no_grad():
        net.position.copy_(state["text.position"])
        for word in words.keys() & rows.keys():
            net.embedding[words[word]] = state["text.embedding"][rows[word]]


def levels_for(side: int, sigmas: torch.Tensor) -> torch.Tensor:
    """Return the noise level at which as much can be seen of a picture as at each level of one of 32 pixels, [1000].

    In twice the pixels a side, noise has to be twice as strong to hide as much (arXiv 2301.11093, section 3.1).
    """
    return torch.searchsorted(sigmas, sigmas * (side / 32)).clamp_max(len(sigmas) - 1)


def loss_weight(a: torch.Tensor, s: torch.Tensor, side: int, progress: float) -> torch.Tensor:
    """Return how much the error of v counts, [B], by the shares of signal and of noise, [B, 1, 1, 1]."""
    ratio = (a / s * (side / 32)).pow(2).view(-1)  # as of a picture of 32 pixels, see levels_for
    # The error of v times a^2 is that of the noise, which makes the middle levels, where shapes are decided, count
    # most. A tenth of v's own weighting keeps the noisiest ones learning what they must know, the mean colours.
    weight = 0.1 + 0.9 * ratio / (1.0 + ratio)
    if progress < PLAIN_LOSS_FROM:
        # Shapes first, then grain: min-SNR (arXiv 2303.09556) starves the low-noise levels that remove it.
        weight = weight * (MIN_SNR_GAMMA / ratio).clamp_max(1.0)
    return weight


def learning_rate(progress: float, step: int, peak: float) -> float:
    """100 steps of warm-up, constant until 40 % of the run, then half a cosine down to zero."""
    decay = 0.5 * (1.0 + math.cos(math.pi * (max(progress, 0.4) - 0.4) / 0.6))
    return peak * min(1.0, (step + 1) / 100) * decay


class Muon(torch.optim.Optimizer):
    """Momentum whose update is made orthogonal (Jordan et al., 2024), for weights of two and more dimensions.

    The scale 0.2 sqrt(longer side) gives the update the size that AdamW's has (arXiv 2502.16982), so that both can
    share one learning rate.
    """

    def __init__(self, parameters: list[nn.Parameter], lr: float, momentum: float = 0.95) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:
        """Update every weight; weights of one shape go through the iteration as one batch."""
        for group in self.param_groups:
            shapes: dict[tuple[int, int], list[tuple[nn.Parameter, torch.Tensor]]] = {}
            for weight in group["params"]:
                state = self.state[weight]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(weight.grad)
                state["momentum"].lerp_(weight.grad, 1.0 - group["momentum"])
                update = weight.grad.lerp(state["momentum"], group["momentum"]).flatten(1)
                shapes.setdefault(tuple(update.shape), []).append((weight, update))
            for (rows, columns), entries in shapes.items():
                updates = orthogonal(torch.stack([update for _, update in entries]))
                scale = -group["lr"] * 0.2 * max(rows, columns) ** 0.5
                for (weight, _), update in zip(entries, updates, strict=True):
                    weight.add_(update.view_as(weight), alpha=scale)


def optimisers(net: Net, lr: float) -> list[torch.optim.Optimizer]:
    """Return what trains a network: Muon, and AdamW for both ends, whose shapes are dictated by the picture."""
    ends = ("input_blocks.0.", "out.", "img_in.", "x_embedder.", "final_layer.linear.", "patch_embedding.", "head.")
    inner = [p for name, p in net.unet.named_parameters() if p.ndim in (2, 4) and not name.startswith(ends)]
    outer = [p for p in net.parameters() if all(p is not q for q in inner)]
    return [
        Muon(inner, lr=lr),
        torch.optim.AdamW(outer, lr=lr, betas=(0.9, 0.98), weight_decay=0.0, foreach=True),
    ]


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Push the singular values of [batch, rows, columns] towards 1 by five Newton-Schulz steps."""
    x = matrices.to(torch.bfloat16)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return (x.mT if tall else x).to(matrices.dtype)


@torch.no_grad()
def sample(
    net: Net,
    alpha: torch.Tensor,
    ids: torch.Tensor,
    null: torch.Tensor,
    size: int,
    cfg: float = 1.5,
    steps: int = 20,
    seed: int = 1,
) -> torch.Tensor:
    """DDIM with classifier-free guidance -> [B, 4, size, size]; only for looking at the progress."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(len(ids), 4, size, size, generator=generator).to(ids.device)
    times = torch.linspace(len(alpha) - 1, 0, steps).round().long().tolist()
    null = null.expand_as(ids)
    clean = x
    for now, then in zip(times, [*times[1:], -1], strict=True):
        step = torch.full((len(ids),), now, device=ids.device)
        v = net(x, step, ids).float()
        if cfg != 1.0:
            plain = net(x, step, null).float()
            v = plain + cfg * (v - plain)
        a, s = alpha[now], (1.0 - alpha[now] ** 2).sqrt()
        clean = a * x - s * v
        noise = s * x + a * v
        if then >= 0:
            x = alpha[then] * clean + (1.0 - alpha[then] ** 2).sqrt() * noise
    return clean


def save(
    net: Net,
    path: Path,
    settings: dict[str, Any],
    source: icon_data.Icons,
    words: dict[str, int],
    facts: dict[str, Any],
) -> None:
    """Write the half-precision weights with everything a loader has to know in the metadata."""
    tensors = {f"model.diffusion_model.{key}": value for key, value in net.unet.state_dict().items()}
    tensors |= {"text.embedding": net.embedding, "text.position": net.position}
    tensors = {key: value.detach().to("cpu", torch.float16).contiguous() for key, value in tensors.items()}
    metadata = {
        "format": "pt",
        "config": json.dumps(settings),
        "vocabulary": json.dumps(words),
        "names": json.dumps(source.captions),
        "prediction": "v_prediction",
        "schedule": "scaled linear 0.00085 to 0.012, 1000 steps",
        "images": source.credit,
        **{key: str(value) for key, value in facts.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    save_file(tensors, partial, metadata)
    partial.replace(path)  # a reader never sees half a file
