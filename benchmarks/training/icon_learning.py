"""What trains the icon models: optimisers, noise levels, what an error counts, and a UNet as a teacher."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from icon_nets import Net, trained
from torch import Tensor, nn

MIN_SNR_GAMMA = 5.0
PLAIN_LOSS_FROM = 0.6  # share of the run after which the loss weights every noise level alike
SPREAD = 1.4
"""Of the noise levels: logit-normal (arXiv 2403.03206), wider than there, so that both ends are learned."""
TAUGHT_FROM = 0.15
"""Lowest noise level of a teacher: below, little is left to chance, and its own errors would count most."""


def flow_levels(even: Tensor, stronger: float) -> Tensor:
    """Return noise levels in 0..1 for numbers that are evenly spread there, with noise so many times as strong."""
    normal = torch.special.ndtri(even.clamp(1e-4, 1 - 1e-4))
    return torch.sigmoid(SPREAD * normal + math.log(stronger))


def discrete_sigmas() -> Tensor:
    """Return the noise levels of Stable Diffusion 1.5's schedule, [1000]."""
    import comfy.model_sampling

    return comfy.model_sampling.ModelSamplingDiscrete().sigmas


def levels_for(side: int, sigmas: Tensor) -> Tensor:
    """Return the noise level at which as much can be seen of a picture as at each level of one of 32 pixels, [1000].

    In twice the pixels a side, noise has to be twice as strong to hide as much (arXiv 2301.11093, section 3.1).
    """
    return torch.searchsorted(sigmas, sigmas * (side / 32)).clamp_max(len(sigmas) - 1)


def loss_weight(a: Tensor, s: Tensor, side: int, progress: float) -> Tensor:
    """Return how much the error of v counts, [B], by the shares of signal and of noise, [B, 1, 1, 1]."""
    ratio = (a / s * (side / 32)).pow(2).view(-1)  # as of a picture of 32 pixels, see levels_for
    # The error of v times a^2 is that of the noise, which makes the middle levels, where shapes are decided, count
    # most. A tenth of v's own weighting keeps the noisiest ones learning what they must know, the mean colours.
    weight = 0.1 + 0.9 * ratio / (1.0 + ratio)
    if progress < PLAIN_LOSS_FROM:
        # Shapes first, then grain: min-SNR (arXiv 2303.09556) starves the low-noise levels that remove it.
        weight = weight * (MIN_SNR_GAMMA / ratio).clamp_max(1.0)
    return weight


class Learner:
    """Trains all weights of a network, and keeps their moving average with a decay of at most ``decay``."""

    def __init__(self, net: Net, peak: float, decay: float) -> None:
        self.parameters, self._peak, self._decay, self.steps = list(net.parameters()), peak, decay, 0
        self.average = [parameter.detach().clone() for parameter in self.parameters]
        # Muon for what is inside, AdamW for both ends, whose shapes are dictated by the picture.
        ends = ("input_blocks.0.", "out.", "img_in.", "x_embedder.", "final_layer.linear.", "patch_embedding.", "head.")
        inner = [p for name, p in net.unet.named_parameters() if p.ndim in (2, 4) and not name.startswith(ends)]
        outer = [p for p in self.parameters if all(p is not q for q in inner)]
        adam = torch.optim.AdamW(outer, lr=peak, betas=(0.9, 0.98), weight_decay=0.0, foreach=True)
        self.optimisers = [Muon(inner, lr=peak), adam]

    def learn(self, loss: Tensor, progress: float) -> None:
        """Take one step: 100 of warm-up, constant until 40 % of the run, then half a cosine down to zero."""
        decay = 0.5 * (1.0 + math.cos(math.pi * (max(progress, 0.4) - 0.4) / 0.6))
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for optimiser in self.optimisers:
            optimiser.param_groups[0]["lr"] = self._peak * min(1.0, (self.steps + 1) / 100) * decay
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        live = [parameter.detach() for parameter in self.parameters]
        torch._foreach_lerp_(self.average, live, 1.0 - min(self._decay, self.steps / (self.steps + 20)))
        self.steps += 1


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
            shapes: dict[tuple[int, int], list[tuple[nn.Parameter, Tensor]]] = {}
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


def orthogonal(matrices: Tensor) -> Tensor:
    """Push the singular values of [batch, rows, columns] towards 1 by five Newton-Schulz steps."""
    x = matrices.to(torch.bfloat16)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return (x.mT if tall else x).to(matrices.dtype)


class Teacher:
    """A trained UNet of the icons, whose prediction, in place of one drawing, a transformer is trained towards.

    It is the mean of all pictures that a noisy one may have come from, where a drawing is only one of them: a target
    with the same mean and without the chance in it (arXiv 2305.15798 distils so), which small batches need most.
    """

    def __init__(self, path: Path, device: torch.device) -> None:
        self._net = trained("icons", path, device).eval()
        sigmas = discrete_sigmas()
        self._levels = (sigmas / (1 + sigmas)).to(device)  # [1000], ascending

    def teaches(self, level: Tensor) -> Tensor:
        """Return for which noise levels of the flow, [B] in 0..1, it has learned a velocity; pure noise is one."""
        return (level >= TAUGHT_FROM) & (level <= self._levels[-1]) | (level == 1.0)

    def nearest(self, level: Tensor) -> Tensor:
        """Move noise levels, [B] and below 1, to the nearest of its schedule where it teaches."""
        return torch.where(self.teaches(level), self._levels[self._place(level)], level)

    def _place(self, level: Tensor) -> Tensor:
        return (self._levels - level.view(-1, 1)).abs().argmin(1)

    def instead(self, wanted: Tensor, noisy: Tensor, level: Tensor, captions: list[str]) -> Tensor:
        """Return ``wanted``, noise - picture [B, 4, H, W], with what it predicts where it teaches."""
        taught = self.velocity(noisy, level, captions)
        return torch.where(self.teaches(level).view(-1, 1, 1, 1), taught, wanted)

    @torch.no_grad()
    def velocity(self, noisy: Tensor, level: Tensor, captions: list[str]) -> Tensor:
        """Return noise - picture for noisy pictures [B, 4, H, W] of the flow at ``level`` [B]; "" is no caption."""
        each = (-1, 1, 1, 1)
        pure = (level >= 1.0).view(each)
        size = (level**2 + (1 - level) ** 2).sqrt().view(each)
        s = torch.where(pure, 1.0, level.view(each) / size)
        a = torch.where(pure, 0.0, (1 - level).view(each) / size)
        scaled = (noisy / size).contiguous(memory_format=torch.channels_last)
        v = self._net(scaled, self._place(level), captions).float()
        return (s * scaled + a * v) - (a * scaled - s * v)
