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
"""Noise level from which it teaches: below, little is left to chance, and its own errors would count most."""


class Teacher:
    """A UNet with v-prediction, asked for the velocity of the flow."""

    def __init__(self, path: Path, device: torch.device) -> None:
        unet_class, operations, sigmas = icon_net.import_unet(device)
        with safe_open(path, "pt") as file:
            facts = file.metadata()
            state = {key: file.get_tensor(key).float() for key in file.keys()}  # noqa: SIM118
        unet = unet_class(**json.loads(facts["config"]), dtype=torch.float32, operations=operations)
        self.words = json.loads(facts["vocabulary"])
        self._net = icon_net.Net(unet, len(self.words), state["text.embedding"].shape[1])
        icon_net.warm_start(self._net, path, self.words)
        self._net = self._net.to(device, memory_format=torch.channels_last).eval()
        self._sigmas = sigmas.to(device)  # [1000], ascending

    def nearest(self, level: torch.Tensor) -> torch.Tensor:
        """Return the noise levels of the teacher's schedule that are nearest to some of the flow, [B] in 0..1."""
        sigma = self._sigmas[self._place(level)]
        return torch.where(level < FROM, level, sigma / (1 + sigma))

    def _place(self, level: torch.Tensor) -> torch.Tensor:
        sigma = level / (1 - level).clamp_min(1e-6)
        return torch.searchsorted(self._sigmas, sigma).clamp_max(len(self._sigmas) - 1)

    @torch.no_grad()
    def velocity(self, noisy: torch.Tensor, level: torch.Tensor, captions: list[str]) -> torch.Tensor:
        """Return noise - picture for noisy pictures [B, 4, H, W] of the flow at ``level`` [B]; "" is no caption."""
        each = (-1, 1, 1, 1)
        pure = (level >= 1.0).view(each)
        size = (level**2 + (1 - level) ** 2).sqrt().view(each)
        s = torch.where(pure, 1.0, level.view(each) / size)
        a = torch.where(pure, 0.0, (1 - level).view(each) / size)
        scaled = (noisy / size).contiguous(memory_format=torch.channels_last)
        ids = torch.tensor([icon_words.tokenize(text, self.words) for text in captions], device=noisy.device)
        v = self._net(scaled, self._place(level * 0.999999), ids).float()
        return (s * scaled + a * v) - (a * scaled - s * v)
