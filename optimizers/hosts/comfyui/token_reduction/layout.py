"""Where the tokens of the image are among the keys of one attention call."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ....token_merging import kept_tokens
from .families import TEXT_FIRST, Family

SAME_SIZE = "text and image have the same number of tokens, so their attention calls cannot be told apart"


@dataclass(frozen=True)
class Layout:
    """The tokens of one model call: ``[text, image, padding]``, the image frame by frame, row by row.

    Attributes:
        text: tokens before the image; 0 where attention is over the image alone.
        frames: frames of a video, 1 for an image.
        rows: rows of tokens in a frame.
        columns: columns of tokens in a frame.
        padding: tokens behind the image that the network adds.
    """

    text: int
    frames: int
    rows: int
    columns: int
    padding: int = 0

    @property
    def image(self) -> int:
        """How many tokens the image has."""
        return self.frames * self.rows * self.columns

    @property
    def tokens(self) -> int:
        """How many tokens there are."""
        return self.text + self.image + self.padding

    def kept(self, ratio: float, device: torch.device) -> torch.Tensor:
        """Return the places that stay, int64: all of text and padding, a coarser grid of each frame."""
        size = self.rows * self.columns
        frames = torch.arange(self.frames, device=device)[:, None] * size
        image = (frames + kept_tokens(self.rows, self.columns, ratio, device)).flatten() + self.text
        behind = torch.arange(self.text + self.image, self.tokens, device=device)
        return torch.cat([torch.arange(self.text, device=device), image, behind])


@dataclass(frozen=True)
class ExpectedCalls:
    """The attention calls a model call is expected to make.

    Attributes:
        eligible: layouts of the calls to reduce, by their number of tokens.
        ordinary: numbers of tokens of calls that are none of our business (the text with itself, refiners).
        ambiguous: numbers of tokens that both have.
    """

    eligible: Mapping[int, Layout]
    ordinary: frozenset[int]
    ambiguous: frozenset[int]


def expected_calls(family: Family, network: Any, shapes: Mapping[str, Sequence[int]]) -> ExpectedCalls:
    """Work out the tokens of one model call from the sizes of what the network is given.

    Args:
        family: how the network lays out its tokens.
        network: the live network, asked for its patch size.
        shapes: see ``ModelCall.shapes``.
    """
    latent = shapes["x"]
    patch = network.patch_size
    sides = (patch, patch) if isinstance(patch, int) else tuple(patch)
    rows, columns = math.ceil(latent[-2] / sides[-2]), math.ceil(latent[-1] / sides[-1])
    frames = math.ceil(latent[-3] / (sides[0] if len(sides) == 3 else 1)) if len(latent) == 5 else 1
    parts = [shapes[name][1] for name in ("c_crossattn", *family.more_text) if name in shapes]
    texts = {*parts, sum(parts)}
    text, padding = sum(parts), 0
    multiple = getattr(network, "pad_tokens_multiple", None)
    if multiple is not None:
        text = math.ceil(text / multiple) * multiple
        padding = -(frames * rows * columns) % multiple
        texts.add(text)
    image = Layout(0, frames, rows, columns, padding)
    joint = Layout(text, frames, rows, columns, padding)
    chosen = [joint] if family.layout == TEXT_FIRST else [image]
    if family.image_attention:
        chosen.append(image)
    eligible = {layout.tokens: layout for layout in chosen}
    # Only calls over the image alone can be taken for others: a joint call has more tokens than either part. Where both
    # kinds are reduced (SD3), the text has no calls of its own that reach the hook.
    alone = set() if family.image_attention else {size for size, layout in eligible.items() if layout.text == 0}
    return ExpectedCalls(eligible, frozenset(texts | {image.tokens}), frozenset(alone & texts))
