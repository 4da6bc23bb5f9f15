"""A trained UNet of the icons as teacher of a transformer: its prediction is what a picture is trained towards.

The prediction is the mean of all pictures that a noisy one may have come from, where a drawing is only one of them: a
target with the same mean and without the chance in it (arXiv 2305.15798 distils so), which small batches need most.
"""

from __future__ import annotations

import json
from pathlib import Path

import icon_net
import icon_words
import torch
from safetensors import safe_open

FROM = 0.15
"""Lowest noise level that it teaches: below, little is left to chance, and its own errors would count most."""


class Teacher:
    """A UNet with v-prediction, asked for the velocity of the flow."""

    def __init__(self, path: Path, device: torch.device) -> None:
        unet_class, operations, sigmas = icon_net.import_unet(device)
        with safe_open(path, "pt") as file:
            facts = file.metadata()
        config = json.loads(facts["config"])
        unet = unet_class(**config, dtype=torch.float32, operations=operations)
        self._words = json.loads(facts["vocabulary"])
        self._net = icon_net.Net(unet, len(self._words), config["context_dim"])
        icon_net.warm_start(self._net, path, self._words)
        self._net = self._net.to(device, memory_format=torch.channels_last).eval()
        self._levels = (sigmas / (1 + sigmas)).to(device)  # [1000], ascending

    def teaches(self, level: torch.Tensor) -> torch.Tensor:
        """Return for which noise levels of the flow, [B] in 0..1, it has learned a velocity; pure noise is one."""
        return (level >= FROM) & (level <= self._levels[-1]) | (level == 1.0)

    def nearest(self, level: torch.Tensor) -> torch.Tensor:
        """Move noise levels, [B] and below 1, to the nearest of its schedule where it teaches."""
        return torch.where(self.teaches(level), self._levels[self._place(level)], level)

    def _place(self, level: torch.Tensor) -> torch.Tensor:
        return (self._levels - level.view(-1, 1)).abs().argmin(1)

    @torch.no_grad()
    def velocity(self, noisy: torch.Tensor, level: torch.Tensor, captions: list[str]) -> torch.Tensor:
        """Return noise - picture for noisy pictures [B, 4, H, W] of the flow at ``level`` [B]; "" is no caption."""
        each = (-1, 1, 1, 1)
        pure = (level >= 1.0).view(each)
        size = (level**2 + (1 - level) ** 2).sqrt().view(each)
        s = torch.where(pure, 1.0, level.view(each) / size)
        a = torch.where(pure, 0.0, (1 - level).view(each) / size)
        scaled = (noisy / size).contiguous(memory_format=torch.channels_last)
        ids = torch.tensor([icon_words.tokenize(text, self._words) for text in captions], device=noisy.device)
        v = self._net(scaled, self._place(level), ids).float()
        return (s * scaled + a * v) - (a * scaled - s * v)
