"""Flow matching, by which the transformers learn: the start, the noise levels, and pictures to look at."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext

import icon_net
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

SPREAD = 1.4
"""Of the noise levels: logit-normal (arXiv 2403.03206), wider than there, so that both ends are learned."""


def initialise(network: nn.Module, *silent: str) -> None:
    """Give parameters a start: ComfyUI's operations leave them as they are.

    Layers with one of ``silent`` in their names are zero: every block starts as the identity.
    """
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


def attention_for(device: torch.device) -> AbstractContextManager[None]:
    """Return what chooses an attention: on processor cores the gradient of the fused one took two fifths of a step."""
    return sdpa_kernel(SDPBackend.MATH) if device.type == "cpu" else nullcontext()


def levels(even: torch.Tensor, stronger: float = 1.0) -> torch.Tensor:
    """Return noise levels in 0..1 for numbers that are evenly spread there, with noise so many times as strong."""
    normal = torch.special.ndtri(even.clamp(1e-4, 1 - 1e-4))
    return torch.sigmoid(SPREAD * normal + math.log(stronger))


def as_of(level: torch.Tensor, times: float) -> torch.Tensor:
    """Return the noise level at which noise is so many times as strong beside the picture."""
    return times * level / (1 + (times - 1) * level)


@torch.no_grad()
def sample(
    net: icon_net.Net,
    ids: torch.Tensor,
    null: torch.Tensor,
    size: int,
    steps: int = 20,
    cfg: float = 2.0,
    seed: int = 1,
    frames: int = 0,
    stronger: float = 1.0,
) -> torch.Tensor:
    """Euler with classifier-free guidance -> [B, 4, (frames,) size, size]; only for looking at the progress."""
    shape = (len(ids), 4, *(frames,) * bool(frames), size, size)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(ids.device)
    null = null.expand_as(ids)
    for now, then in as_of(torch.linspace(1, 0, steps + 1), stronger).unfold(0, 2, 1).tolist():
        level = torch.full((len(ids),), now, device=ids.device)
        plain = net(x, level, null).float()
        x = x - (plain + cfg * (net(x, level, ids).float() - plain)) * (now - then)
    return x
