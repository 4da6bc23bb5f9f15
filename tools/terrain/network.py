"""The terrain model in plain torch: a UNet as in guided diffusion, distilled to one step.

10,456,545 parameters; pictures of 128x128 with one channel; 28 self-attention blocks: 9 at 32x32 tokens, 9 at 16x16
and 10 at 8x8, with heads of 32 channels. Four pictures at sigma 80 differ from what onnxruntime 1.31.1 makes of the
original file by at most @ERR@ (float32; the pictures range over about 2).

Architecture after guided diffusion (https://github.com/openai/guided-diffusion) and preconditioning after consistency
models (https://arxiv.org/abs/2303.01469), both by OpenAI under the MIT licence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

CHANNELS, MULTIPLIERS, BLOCKS = 32, (1, 1, 2, 3, 4), 4
EMBEDDING = 4 * CHANNELS
HEAD = 32
ATTENTION_FROM = 2
"""First level with attention: 32x32 of 128x128."""

SIGMA, SIGMA_MIN, SIGMA_DATA = 80.0, 0.002, 0.5


class Place(NamedTuple):
    """Where in the network an attention is: ``part`` is input, middle or output; ``block`` counts all attentions."""

    part: str
    block: int
    height: int
    width: int


Hook = Callable[["SelfAttention", Tensor, Place], Tensor]
"""Called instead of an attention: ``(attention, tokens [batch, tokens, channels], place)`` -> the same shape."""


class Residual(nn.Module):
    """Two convolutions; the embedding scales and shifts between them."""

    def __init__(self, channels: int, out: int, resize: str | None = None) -> None:
        super().__init__()
        self.resize = resize
        convolution = nn.Conv2d(channels, out, 3, padding=1)
        self.in_layers = nn.Sequential(nn.GroupNorm(32, channels), nn.SiLU(), convolution)
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(EMBEDDING, 2 * out))
        last = nn.Conv2d(out, out, 3, padding=1)
        self.out_layers = nn.Sequential(nn.GroupNorm(32, out), nn.SiLU(), nn.Identity(), last)
        self.skip_connection = nn.Identity() if channels == out else nn.Conv2d(channels, out, 1)

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        """``[batch, channels, height, width]`` -> ``[batch, out, ...]``, half or twice as large if it resizes."""
        hidden = self._resized(self.in_layers[1](self.in_layers[0](x)))
        hidden = self.in_layers[2](hidden)
        scale, shift = self.emb_layers(embedding)[:, :, None, None].chunk(2, dim=1)
        hidden = self.out_layers[0](hidden) * (1 + scale) + shift
        hidden = self.out_layers[3](self.out_layers[1](hidden))
        return self.skip_connection(self._resized(x)) + hidden

    def _resized(self, x: Tensor) -> Tensor:
        if self.resize is None:
            return x
        return F.avg_pool2d(x, 2) if self.resize == "down" else F.interpolate(x, scale_factor=2.0, mode="nearest")


class SelfAttention(nn.Module):
    """Self-attention over the pixels of a feature map."""

    def __init__(self, channels: int, part: str, block: int) -> None:
        super().__init__()
        self.part, self.block = part, block
        self.norm = nn.GroupNorm(32, channels)
        self.qkv = nn.Conv2d(channels, 3 * channels, 1)
        self.proj_out = nn.Conv2d(channels, channels, 1)
        self.hook: Hook | None = None

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        """``[batch, channels, height, width]`` -> the same."""
        tokens = self.norm(x).flatten(2).transpose(1, 2)
        place = Place(self.part, self.block, *x.shape[-2:])
        result = self.attend(tokens, tokens) if self.hook is None else self.hook(self, tokens, place)
        return x + result.transpose(1, 2).reshape(x.shape)

    def attend(self, queries: Tensor, context: Tensor, bias: Tensor | None = None) -> Tensor:
        """Project, attend and project back.

        Args:
            queries: ``[batch, queries, channels]``, normalised tokens.
            context: ``[batch, keys, channels]``, of which keys and values are made.
            bias: ``[batch, keys]``, added to every query's scores.

        Returns:
            ``[batch, queries, channels]``.
        """
        channels = queries.shape[-1]
        weight, offset = self.qkv.weight.flatten(1), self.qkv.bias
        query = F.linear(queries, weight[:channels], offset[:channels])
        key, value = F.linear(context, weight[channels:], offset[channels:]).chunk(2, dim=-1)
        split = [x.unflatten(-1, (-1, HEAD)).transpose(1, 2) for x in (query, key, value)]
        mask = None if bias is None else bias[:, None, None, :].to(queries.dtype)
        mixed = F.scaled_dot_product_attention(*split, attn_mask=mask).transpose(1, 2).flatten(2)
        return F.linear(mixed, self.proj_out.weight.flatten(1), self.proj_out.bias)


class TerrainUNet(nn.Module):
    """The whole network with its preconditioning."""

    def __init__(self) -> None:
        super().__init__()
        self.time_embed = nn.Sequential(nn.Linear(CHANNELS, EMBEDDING), nn.SiLU(), nn.Linear(EMBEDDING, EMBEDDING))
        self.label_emb = nn.Sequential(nn.Linear(1, EMBEDDING), nn.SiLU(), nn.Linear(EMBEDDING, EMBEDDING))
        self.attentions: list[SelfAttention] = []
        widths = [CHANNELS]
        inputs: list[list[nn.Module]] = [[nn.Conv2d(1, CHANNELS, 3, padding=1)]]
        for level, multiplier in enumerate(MULTIPLIERS):
            out = CHANNELS * multiplier
            for _ in range(BLOCKS):
                inputs.append([Residual(widths[-1], out), *self._attention(level, out, "input")])
                widths.append(out)
            if level < len(MULTIPLIERS) - 1:
                inputs.append([Residual(out, out, "down")])
                widths.append(out)
        now = widths[-1]
        middle = [Residual(now, now), *self._attention(len(MULTIPLIERS) - 1, now, "middle"), Residual(now, now)]
        outputs: list[list[nn.Module]] = []
        for level, multiplier in reversed(list(enumerate(MULTIPLIERS))):
            for number in range(BLOCKS + 1):
                out = CHANNELS * multiplier
                layers = [Residual(now + widths.pop(), out), *self._attention(level, out, "output")]
                if level and number == BLOCKS:
                    layers.append(Residual(out, out, "up"))
                outputs.append(layers)
                now = out
        self.input_blocks = nn.ModuleList(nn.ModuleList(layers) for layers in inputs)
        self.middle_block = nn.ModuleList(middle)
        self.output_blocks = nn.ModuleList(nn.ModuleList(layers) for layers in outputs)
        self.out = nn.Sequential(nn.GroupNorm(32, now), nn.SiLU(), nn.Conv2d(now, 1, 3, padding=1))

    def _attention(self, level: int, channels: int, part: str) -> list[nn.Module]:
        if level < ATTENTION_FROM:
            return []
        self.attentions.append(SelfAttention(channels, part, len(self.attentions)))
        return [self.attentions[-1]]

    def set_hook(self, hook: Hook | None) -> None:
        """Run every attention through ``hook``; None takes it off."""
        for attention in self.attentions:
            attention.hook = hook

    def forward(self, noisy: Tensor, sigma: Tensor, difficulty: Tensor) -> Tensor:
        """Return the denoised picture, -1 to 1.

        Args:
            noisy: ``[batch, 1, 128, 128]``, a picture plus ``sigma`` times standard noise.
            sigma: ``[batch]``; only 80, pure noise, gives a good picture in one step.
            difficulty: ``[batch]``, how rugged the terrain is, 0 to 1.
        """
        sigma = sigma.float()
        scale = (sigma**2 + SIGMA_DATA**2).rsqrt()
        skip = SIGMA_DATA**2 / ((sigma - SIGMA_MIN) ** 2 + SIGMA_DATA**2)
        out = (sigma - SIGMA_MIN) * SIGMA_DATA * scale
        frequencies = torch.exp(-math.log(10000.0) * torch.arange(CHANNELS // 2, device=sigma.device) * 2 / CHANNELS)
        angles = 250.0 * sigma.log()[:, None] * frequencies
        dtype = self.out[-1].weight.dtype
        embedding = self.time_embed(torch.cat([angles.cos(), angles.sin()], dim=-1).to(dtype))
        embedding = embedding + self.label_emb(difficulty[:, None].to(dtype))
        predicted = self._network((noisy * scale[:, None, None, None]).to(dtype), embedding)
        denoised = skip[:, None, None, None] * noisy + out[:, None, None, None] * predicted.float()
        return denoised.clamp(-1.0, 1.0)

    def _network(self, x: Tensor, embedding: Tensor) -> Tensor:
        x = self.input_blocks[0][0](x)
        saved = [x]
        for layers in self.input_blocks[1:]:
            for layer in layers:
                x = layer(x, embedding)
            saved.append(x)
        for layer in self.middle_block:
            x = layer(x, embedding)
        for layers in self.output_blocks:
            x = torch.cat([x, saved.pop()], dim=1)
            for layer in layers:
                x = layer(x, embedding)
        return self.out(x)


def load(path: Path) -> TerrainUNet:
    """Return the trained network from the file that ``fetch.weights`` makes."""
    network = TerrainUNet()
    network.load_state_dict(load_file(path))
    return network.eval().requires_grad_(False)


def inputs(seeds: range) -> tuple[Tensor, Tensor, Tensor]:
    """Return noise, sigma and difficulty for one picture per seed, from gentle to rugged."""
    noise = [torch.randn(1, 128, 128, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    difficulty = torch.tensor([(seed % 6) / 5 for seed in seeds])
    return torch.stack(noise) * SIGMA, torch.full((len(seeds),), SIGMA), difficulty


@torch.inference_mode()
def draw(network: TerrainUNet, seeds: range) -> Tensor:
    """Return one picture per seed, ``[seeds, 128, 128]``, in float32."""
    return network(*inputs(seeds))[:, 0]
