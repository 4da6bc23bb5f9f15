"""The places of a UNet with self-attention over the image."""

from __future__ import annotations

from dataclasses import dataclass

Size = tuple[int, int]
"""Rows and columns."""


@dataclass(frozen=True)
class Block:
    """One place with self-attention over the image; each host adds how it finds it.

    Attributes:
        name: what a person calls it, e.g. ``input 4.1``.
        number: how many others come before it: part of its random sequence, so ``max_downsample`` must not change it.
        downsample: how many times smaller than the latent its tokens' grid is on each side (1, 2, 4, 8).
    """

    name: str
    number: int
    downsample: int

    def size(self, latent: Size) -> Size:
        """Return rows and columns of tokens. Each step down is a convolution of stride 2, which rounds up."""
        return -(-latent[0] // self.downsample), -(-latent[1] // self.downsample)
